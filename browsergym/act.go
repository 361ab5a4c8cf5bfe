package browsergym

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// An actor executes the calls of one action. Errors of type *cdp.Failure or *action.Error are shown
// to the agent; all others end the episode.
type actor struct {
	e     *Env
	page  *cdp.Page // the active page, or the one that a tab call has chosen
	retry bool      // retry calls that timed out, with force
}

// each calls functions in order, up to the first error.
func each(do ...func() error) error {
	for _, f := range do {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (a *actor) scale() float64 { return a.e.scale(a.page) }

// sendMessage adds a message to the chat.
func (a *actor) sendMessage(role string, v pyrepr.Value) error {
	s, ok := v.(pyrepr.Str)
	if !ok {
		return failure("ValueError", "Forbidden value: %s is not a string", pyrepr.Repr(v))
	}
	a.e.chat.say(role, string(s))
	return nil
}

// maxNoop bounds the wait of noop.
const maxNoop = time.Hour

func (a *actor) noop(ctx context.Context, args []pyrepr.Value) error {
	ms, ok := number(args[0])
	if _, isBool := args[0].(pyrepr.Bool); !ok || isBool {
		return failure("Error", "Page.wait_for_timeout: timeout: expected number, got %s", jsArgType(args[0]))
	}
	d := maxNoop
	if ms < float64(maxNoop/time.Millisecond) {
		d = time.Duration(math.Max(ms, 0) * float64(time.Millisecond))
	}
	return sleep(ctx, d)
}

// withElement finds the element of a bid and calls do.
func (a *actor) withElement(ctx context.Context, bid pyrepr.Value, do func(*cdp.Element) error) error {
	s, ok := bid.(pyrepr.Str)
	if !ok {
		return failure("ValueError", "expected a string, got %s", pyrepr.Repr(bid))
	}
	e, err := a.page.Find(ctx, string(s))
	if err != nil {
		return err
	}
	return do(e)
}

// withForce calls try, and again with force after a timeout if the action set says so.
func (a *actor) withForce(try func(force bool) error) error {
	err := try(false)
	if a.retry && cdp.Timeout(err) {
		return try(true)
	}
	return err
}

func (a *actor) click(ctx context.Context, args []pyrepr.Value, double bool) error {
	api := "Locator.click"
	if double {
		api = "Locator.dblclick"
	}
	return a.withElement(ctx, args[0], func(e *cdp.Element) error {
		held, err := modifiers(args[2], api)
		if err != nil {
			return err
		}
		b, err := button(args[1], api)
		if err != nil {
			return err
		}
		return a.withForce(func(force bool) error {
			return e.Click(ctx, cdp.Click{Button: b, Modifiers: held, Double: double, Force: force})
		})
	})
}

func (a *actor) fill(ctx context.Context, args []pyrepr.Value) error {
	return a.withElement(ctx, args[0], func(e *cdp.Element) error {
		const api = "Locator.fill"
		if !isTrue(args[2]) {
			value, err := textOf(args[1], api, "value", "Frame.fill")
			if err != nil {
				return err
			}
			return a.withForce(func(force bool) error { return e.Fill(ctx, value, force) })
		}
		return a.withForce(func(force bool) error {
			if err := e.Clear(ctx); err != nil {
				return err
			}
			s, ok := args[1].(pyrepr.Str)
			if list, isList := items(args[1]); isList && len(list) == 0 {
				return nil
			} else if !ok && !isList {
				return failure("TypeError", "object of type '%s' has no len()", args[1].Type())
			} else if !ok {
				return failure("Error", "%s: value: expected string, got object", api)
			}
			all := string(s)
			_, last := utf8.DecodeLastRuneInString(all)
			if before := all[:len(all)-last]; before != "" {
				if err := e.Fill(ctx, before, force); err != nil {
					return err
				}
				if err := a.e.pause(ctx, a.page); err != nil {
					return err
				}
			}
			if all == "" {
				return nil
			}
			return e.Type(ctx, all[len(all)-last:])
		})
	})
}

func (a *actor) selectOption(ctx context.Context, args []pyrepr.Value) error {
	return a.withElement(ctx, args[0], func(e *cdp.Element) error {
		wanted, err := options(args[1])
		if err != nil {
			return err
		}
		return a.withForce(func(force bool) error { return e.SelectOption(ctx, wanted, force) })
	})
}

func (a *actor) dragAndDrop(ctx context.Context, args []pyrepr.Value) error {
	hover := func(e *cdp.Element) error { return e.Hover(ctx, false) }
	return each(
		func() error { return a.withElement(ctx, args[0], hover) },
		func() error { return a.page.MouseDown(ctx, "left") },
		func() error { return a.withElement(ctx, args[1], hover) },
		func() error { return a.page.MouseUp(ctx, "left") })
}

func (a *actor) upload(ctx context.Context, v pyrepr.Value, trigger func(context.Context) error) error {
	paths, wrong := files(v)
	if wrong == nil {
		return a.page.Upload(ctx, paths, trigger)
	}
	// The reference reports errors about the files only after the file chooser has opened. A file
	// that does not exist leaves the page's current choice unchanged.
	err := a.page.Upload(ctx, []string{""}, trigger)
	var f *cdp.Failure
	if errors.As(err, &f) && strings.HasPrefix(f.Text, "FileChooser.set_files: ") {
		return wrong
	}
	return err
}

// mouse moves the mouse and calls do with the button.
func (a *actor) mouse(ctx context.Context, args []pyrepr.Value, api string,
	do func(*cdp.Page, context.Context, string) error) error {
	d, err := scaled(args[:2], a.scale())
	if err != nil {
		return err
	}
	if err := a.page.MouseMove(ctx, d[0], d[1]); err != nil {
		return err
	}
	b, err := button(args[2], api)
	if err != nil {
		return err
	}
	return do(a.page, ctx, b)
}

func (a *actor) mouseClick(ctx context.Context, args []pyrepr.Value, api string, double bool) error {
	d, err := scaled(args[:2], a.scale())
	if err != nil {
		return err
	}
	b, err := button(args[2], api)
	if err != nil {
		return err
	}
	return a.page.MouseClick(ctx, d[0], d[1], b, double)
}

// typing returns an action that passes a text to the keyboard.
func typing(api, param string, do func(*cdp.Page, context.Context, string) error) actionFunc {
	return func(a *actor, ctx context.Context, args []pyrepr.Value) error {
		s, err := text(args[0], api, param)
		if err != nil {
			return err
		}
		return do(a.page, ctx, s)
	}
}

// switchTo makes another page the target of the following calls.
func (a *actor) switchTo(ctx context.Context, p *cdp.Page) error {
	a.page = p
	return p.Report(ctx)
}

func (a *actor) tabClose(ctx context.Context, _ []pyrepr.Value) error {
	if err := a.page.Close(ctx); err != nil {
		return err
	}
	if all := a.e.context.Pages(); len(all) > 0 {
		return a.switchTo(ctx, all[len(all)-1])
	}
	p, err := a.e.context.NewPage(ctx)
	if err != nil {
		return err
	}
	return a.switchTo(ctx, p)
}

func (a *actor) tabFocus(ctx context.Context, args []pyrepr.Value) error {
	all := a.e.context.Pages()
	i, err := index(args[0], len(all))
	if err != nil {
		return err
	}
	if err := all[i].BringToFront(ctx); err != nil {
		return err
	}
	return a.switchTo(ctx, all[i])
}
