package browsergym

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	_ "embed"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// Demo mode is for people who look on: see [action.Options]. It costs seconds an action, and what
// it draws is part of the page while it is there.

//go:embed demo.js
var demoScript string

// drawing is what the script is told.
type drawing struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Left   float64 `json:"left"`
	Top    float64 `json:"top"`
	Width  float64 `json:"width"`
	Height float64 `json:"height"`
	Colour string  `json:"colour"`
	Move   bool    `json:"move"`
	Mark   bool    `json:"mark"`
}

// pointing are actions on elements to which a cursor goes first.
var pointing = []string{"click", "dblclick", "hover", "drag_and_drop", "upload_file"}

// show shows the element that is acted on next.
func (a *actor) show(ctx context.Context, e *cdp.Element) error {
	mode := a.e.o.Actions.Demo()
	if mode == "" {
		return nil
	}
	if err := e.ScrollIntoView(ctx); err != nil {
		return err
	}
	p, err := e.Place(ctx)
	if err != nil || p == nil || mode == "only_visible_elements" && !p.Top {
		return err
	}
	colour := "blue"
	if !p.Top && mode == "default" {
		colour = "red"
	}
	return a.draw(ctx, drawing{X: p.X + p.Width/2, Y: p.Y + p.Height/2, Left: p.X, Top: p.Y, Width: p.Width,
		Height: p.Height, Colour: colour,
		Move: slices.Contains(pointing, a.call), Mark: a.call != "hover"})
}

// showAt shows the place that the mouse is used at next.
func (a *actor) showAt(ctx context.Context, x, y float64) error {
	if a.e.o.Actions.Demo() == "" || !strings.HasPrefix(a.call, "mouse_") {
		return nil
	}
	return a.draw(ctx, drawing{X: x, Y: y, Left: x, Top: y, Width: 1, Height: 1, Colour: "blue", Move: true,
		Mark: true})
}

// draw does what it can: a page that is on its way elsewhere is not decorated.
func (a *actor) draw(ctx context.Context, d drawing) error {
	err := a.page.Call(ctx, demoScript, nil, d)
	if err != nil && ctx.Err() == nil && !errors.Is(err, cdp.ErrClosed) {
		return nil
	}
	return err
}

// slowly types a text so that people can follow: for two seconds in all, or 10 ms a character.
func slowly(ctx context.Context, text string, each func(string) error) error {
	all := []rune(text)
	if len(all) == 0 {
		return failure("ZeroDivisionError", "division by zero")
	}
	pause := max(2*time.Second/time.Duration(len(all)), 10*time.Millisecond)
	for _, r := range all {
		if err := each(string(r)); err != nil {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}
