package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// input is the state of a page's keyboard and mouse, which persists between actions. It is
// protected by acts.
type input struct {
	x, y           float64
	last           string          // latest button that is still pressed; may be ""
	buttons        map[string]bool // pressed buttons
	held           map[string]bool // modifiers
	keys           map[string]bool // codes of pressed keys
	drag           json.RawMessage // what is being dragged
	dragAt         point
	delayedEffects bool // the browser may react some frames later, for example by scrolling
}

var buttonBits = map[string]int{"left": 1, "right": 2, "middle": 4}

func (in *input) mask() (m int) {
	for b := range in.buttons {
		m |= buttonBits[b]
	}
	return m
}

// mouseEvent is Input.dispatchMouseEvent's parameters.
type mouseEvent struct {
	Type      string  `json:"type"`
	X         float64 `json:"x"`
	Y         float64 `json:"y"`
	Button    string  `json:"button,omitempty"`
	Buttons   int     `json:"buttons"`
	Modifiers int     `json:"modifiers"`
	Clicks    int     `json:"clickCount,omitempty"`
	Force     float64 `json:"force,omitempty"`
	DX        float64 `json:"deltaX"`
	DY        float64 `json:"deltaY"`
}

func (p *Page) mouse(e mouseEvent) (*Pending, error) {
	return p.c.b.Start(p.session, "Input.dispatchMouseEvent", e)
}

func (in *input) event(kind string) mouseEvent {
	e := mouseEvent{Type: kind, X: in.x, Y: in.y, Button: in.last, Buttons: in.mask(), Modifiers: in.modifiers()}
	if e.Button == "" {
		e.Button = "none"
	}
	if len(in.buttons) > 0 && kind != "mouseReleased" {
		e.Force = 0.5
	}
	return e
}

// MouseMove moves the mouse. With the left button pressed it may start or continue a drag.
func (p *Page) MouseMove(ctx context.Context, x, y float64) error {
	return p.inputCall(ctx, "Mouse.move", func(ctx context.Context) error { return p.move(ctx, x, y) })
}

// MouseDown presses a button (left, middle or right) at the mouse position.
func (p *Page) MouseDown(ctx context.Context, button string) error {
	return p.inputCall(ctx, "Mouse.down", func(ctx context.Context) error { return p.button(ctx, button, true, 1) })
}

// MouseUp releases a button at the mouse position and drops what is being dragged.
func (p *Page) MouseUp(ctx context.Context, button string) error {
	return p.inputCall(ctx, "Mouse.up", func(ctx context.Context) error { return p.button(ctx, button, false, 1) })
}

// MouseClick moves the mouse and clicks once or twice, whatever is at that position.
func (p *Page) MouseClick(ctx context.Context, x, y float64, button string, double bool) error {
	api, n := "Mouse.click", 1
	if double {
		api, n = "Mouse.dblclick", 2
	}
	return p.inputCall(ctx, api, func(ctx context.Context) error { return p.click(ctx, x, y, button, n) })
}

// Wheel turns the mouse wheel at the mouse position.
func (p *Page) Wheel(ctx context.Context, dx, dy float64) error {
	return p.inputCall(ctx, "Mouse.wheel", func(ctx context.Context) error {
		e := p.input.event("mouseWheel")
		e.Button, e.Force, e.DX, e.DY = "", 0, dx, dy
		p.input.delayedEffects = true
		q, err := p.mouse(e)
		if err != nil {
			return err
		}
		_, err = q.Wait(ctx)
		return err
	})
}

// inputCall runs one call of mouse or keyboard.
func (p *Page) inputCall(ctx context.Context, api string, act func(context.Context) error) error {
	p.acts.Lock()
	defer p.acts.Unlock()
	err := act(ctx)
	if err != nil {
		var k badKey
		if errors.As(err, &k) {
			err = &Failure{"Error", api + ": " + k.Error()}
		} else {
			err = p.ended(api, err)
		}
	}
	p.slowMo(ctx)
	return err
}

// click sends all events at once, because they belong together.
func (p *Page) click(ctx context.Context, x, y float64, button string, times int) error {
	in := &p.input
	in.x, in.y = x, y
	var all []*Pending
	send := func(e mouseEvent) error {
		q, err := p.mouse(e)
		if err == nil {
			all = append(all, q)
		}
		return err
	}
	if err := send(in.event("mouseMoved")); err != nil {
		return err
	}
	for n := 1; n <= times; n++ {
		in.press(button)
		down := in.event("mousePressed")
		down.Clicks = n
		in.release(button)
		up := in.event("mouseReleased")
		up.Button, up.Clicks = button, n
		if in.drag != nil {
			if n == 1 {
				all = append(all, p.dropDrag()...)
			}
			continue
		}
		if err := send(down); err != nil {
			return err
		}
		if err := send(up); err != nil {
			return err
		}
	}
	for _, q := range all {
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (in *input) press(button string) {
	if in.buttons == nil {
		in.buttons = map[string]bool{}
	}
	in.last = button
	in.buttons[button] = true
}

func (in *input) release(button string) {
	in.last = ""
	delete(in.buttons, button)
}

func (p *Page) button(ctx context.Context, button string, down bool, clicks int) error {
	in := &p.input
	in.delayedEffects = true
	var e mouseEvent
	if down {
		in.press(button)
		e = in.event("mousePressed")
	} else {
		in.release(button)
		e = in.event("mouseReleased")
		e.Button = button
	}
	e.Clicks = clicks
	var all []*Pending
	switch {
	case in.drag != nil && down:
	case in.drag != nil:
		all = p.dropDrag()
	default:
		q, err := p.mouse(e)
		if err != nil {
			return err
		}
		all = append(all, q)
	}
	for _, q := range all {
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// dragLimit bounds the wait for the event of a drag that the page has started.
const dragLimit = 2 * time.Second

// move moves the mouse. Chromium leaves drags to the window system, so with the left button down
// they are intercepted and simulated.
func (p *Page) move(ctx context.Context, x, y float64) error {
	in := &p.input
	in.x, in.y, in.dragAt, in.delayedEffects = x, y, point{x, y}, true
	if in.drag != nil {
		return p.dragEvent(ctx, "dragOver")
	}
	e := in.event("mouseMoved")
	if in.last != "left" {
		q, err := p.mouse(e)
		if err != nil {
			return err
		}
		_, err = q.Wait(ctx)
		return err
	}
	p.c.mu.Lock()
	p.drag = nil
	var tools []string
	for _, f := range p.frames {
		if f.toolsObject != "" {
			tools = append(tools, f.toolsObject)
		}
	}
	p.c.mu.Unlock()
	if main, err := p.tools(ctx, p.mainFrame()); err == nil && len(tools) == 0 {
		tools = []string{main}
	}
	var asked []*Pending
	for _, t := range tools {
		if q, err := p.startMethod(t, "watchDrag"); err == nil {
			asked = append(asked, q)
		}
	}
	if _, err := p.call(ctx, "Input.setInterceptDrags", map[string]any{"enabled": true}); err != nil {
		return err
	}
	for _, q := range asked { // wait for the scripts, because the input takes another path and must not overtake them
		_ = q.value(ctx, nil)
	}
	q, err := p.mouse(e)
	if err != nil {
		return err
	}
	if _, err := q.Wait(ctx); err != nil {
		return err
	}
	asked = asked[:0]
	for _, t := range tools {
		if q, err := p.startMethod(t, "dragStarted"); err == nil {
			asked = append(asked, q)
		}
	}
	started := false
	for _, q := range asked {
		var yes bool
		if q.value(ctx, &yes) == nil && yes {
			started = true
		}
	}
	if started {
		short, cancel := context.WithTimeout(ctx, dragLimit)
		p.c.wait(short, func() (bool, error) { in.drag = p.drag; return p.drag != nil || p.closed, nil })
		cancel()
	}
	if _, err := p.call(ctx, "Input.setInterceptDrags", map[string]any{"enabled": false}); err != nil {
		return err
	}
	if in.drag != nil {
		return p.dragEvent(ctx, "dragEnter")
	}
	return ctx.Err()
}

func (p *Page) dragParams(kind string) map[string]any {
	in := &p.input
	return map[string]any{"type": kind, "x": in.dragAt.X, "y": in.dragAt.Y, "data": in.drag,
		"modifiers": in.modifiers()}
}

func (p *Page) dragEvent(ctx context.Context, kind string) error {
	_, err := p.call(ctx, "Input.dispatchDragEvent", p.dragParams(kind))
	return err
}

// dropDrag drops what is being dragged.
func (p *Page) dropDrag() []*Pending {
	in := &p.input
	in.dragAt = point{in.x, in.y}
	q, err := p.c.b.Start(p.session, "Input.dispatchDragEvent", p.dragParams("drop"))
	in.drag = nil
	if err != nil {
		return nil
	}
	return []*Pending{q}
}

// cancelDrag cancels a drag if there is one.
func (p *Page) cancelDrag(ctx context.Context) (bool, error) {
	in := &p.input
	if in.drag == nil {
		return false, nil
	}
	params := p.dragParams("dragCancel")
	delete(params, "modifiers")
	params["data"] = map[string]any{"items": []any{}, "dragOperationsMask": 0xFFFF}
	in.drag = nil
	_, err := p.call(ctx, "Input.dispatchDragEvent", params)
	return true, err
}
