package browsergym

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/py"
)

// An actor does the calls of one action, back to back. What it returns as *cdp.Failure or *action.Error is the agent's to read; all else ends the episode.
type actor struct {
	e     *Env
	page  *cdp.Page // the active one when the action began, or what tab calls have chosen since
	retry bool      // calls that timed out, by force
}

// A deed does a call whose arguments are those of its signature.
type deed func(a *actor, ctx context.Context, args []py.Value) error

var deeds map[string]deed

func init() { // not a literal: deeds use each other
	deeds = map[string]deed{
		"noop": (*actor).noop,
		"send_msg_to_user": func(a *actor, _ context.Context, args []py.Value) error {
			return a.tell(Assistant, args[0])
		},
		"report_infeasible": func(a *actor, _ context.Context, args []py.Value) error {
			err := a.tell(Infeasible, args[0])
			a.e.infeasible = a.e.infeasible || err == nil
			return err
		},
		"scroll": func(a *actor, ctx context.Context, args []py.Value) error {
			d, err := scaled(args, a.scale())
			if err != nil {
				return err
			}
			return a.page.Wheel(ctx, d[0], d[1])
		},
		"fill":          (*actor).fill,
		"select_option": (*actor).selectOption,
		"click":         func(a *actor, ctx context.Context, args []py.Value) error { return a.click(ctx, args, false) },
		"dblclick":      func(a *actor, ctx context.Context, args []py.Value) error { return a.click(ctx, args, true) },
		"hover": func(a *actor, ctx context.Context, args []py.Value) error {
			return a.on(ctx, args[0], func(e *cdp.Element) error {
				return a.forced(func(force bool) error { return e.Hover(ctx, force) })
			})
		},
		"press": func(a *actor, ctx context.Context, args []py.Value) error {
			return a.on(ctx, args[0], func(e *cdp.Element) error {
				keys, err := textOf(args[1], "Locator.press", "key", "Frame.press")
				if err != nil {
					return err
				}
				return e.Press(ctx, keys)
			})
		},
		"focus": func(a *actor, ctx context.Context, args []py.Value) error {
			return a.on(ctx, args[0], func(e *cdp.Element) error { return e.Focus(ctx) })
		},
		"clear": func(a *actor, ctx context.Context, args []py.Value) error {
			return a.on(ctx, args[0], func(e *cdp.Element) error { return e.Clear(ctx) })
		},
		"drag_and_drop": (*actor).dragAndDrop,
		"upload_file": func(a *actor, ctx context.Context, args []py.Value) error {
			return a.on(ctx, args[0], func(e *cdp.Element) error {
				return a.upload(ctx, args[1], func(ctx context.Context) error { return e.Click(ctx, cdp.Click{}) })
			})
		},
		"scroll_at": func(a *actor, ctx context.Context, args []py.Value) error {
			d, err := scaled(args, a.scale())
			if err != nil {
				return err
			}
			return each(
				func() error { return a.page.MouseMove(ctx, d[0], d[1]) },
				func() error { return a.page.Wheel(ctx, d[2], d[3]) })
		},
		"mouse_move": func(a *actor, ctx context.Context, args []py.Value) error {
			d, err := scaled(args, a.scale())
			if err != nil {
				return err
			}
			return a.page.MouseMove(ctx, d[0], d[1])
		},
		"mouse_down": func(a *actor, ctx context.Context, args []py.Value) error {
			return a.mouse(ctx, args, "Mouse.down", (*cdp.Page).MouseDown)
		},
		"mouse_up": func(a *actor, ctx context.Context, args []py.Value) error {
			return a.mouse(ctx, args, "Mouse.up", (*cdp.Page).MouseUp)
		},
		"mouse_click": func(a *actor, ctx context.Context, args []py.Value) error {
			return a.mouseClick(ctx, args, "Mouse.click", false)
		},
		"mouse_dblclick": func(a *actor, ctx context.Context, args []py.Value) error {
			return a.mouseClick(ctx, args, "Mouse.dblclick", true)
		},
		"mouse_drag_and_drop": func(a *actor, ctx context.Context, args []py.Value) error {
			d, err := scaled(args, a.scale())
			if err != nil {
				return err
			}
			return each(
				func() error { return a.page.MouseMove(ctx, d[0], d[1]) },
				func() error { return a.page.MouseDown(ctx, "left") },
				func() error { return a.page.MouseMove(ctx, d[2], d[3]) },
				func() error { return a.page.MouseUp(ctx, "left") })
		},
		"mouse_upload_file": func(a *actor, ctx context.Context, args []py.Value) error {
			d, err := scaled(args[:2], a.scale())
			if err != nil {
				return err
			}
			return a.upload(ctx, args[2], func(ctx context.Context) error { return a.page.MouseClick(ctx, d[0], d[1], "left", false) })
		},
		"keyboard_press":       typing("Keyboard.press", "key", (*cdp.Page).KeyPress),
		"keyboard_down":        typing("Keyboard.down", "key", (*cdp.Page).KeyDown),
		"keyboard_up":          typing("Keyboard.up", "key", (*cdp.Page).KeyUp),
		"keyboard_type":        typing("Keyboard.type", "text", (*cdp.Page).TypeText),
		"keyboard_insert_text": typing("Keyboard.insert_text", "text", (*cdp.Page).InsertText),
		"goto": func(a *actor, ctx context.Context, args []py.Value) error {
			url, err := textOf(args[0], "Page.goto", "url", "Frame.goto")
			if err != nil {
				return err
			}
			return a.page.Goto(ctx, url)
		},
		"go_back":    func(a *actor, ctx context.Context, _ []py.Value) error { return a.page.Back(ctx) },
		"go_forward": func(a *actor, ctx context.Context, _ []py.Value) error { return a.page.Forward(ctx) },
		"new_tab": func(a *actor, ctx context.Context, _ []py.Value) error {
			p, err := a.e.context.NewPage(ctx)
			if err != nil {
				return err
			}
			return a.turn(ctx, p)
		},
		"tab_close": (*actor).tabClose,
		"tab_focus": (*actor).tabFocus,
	}
}

// each does one thing after the other, up to the first that fails.
func each(do ...func() error) error {
	for _, f := range do {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func (a *actor) scale() float64 { return a.e.scale(a.page) }

// tell says something in the chat.
func (a *actor) tell(role string, v py.Value) error {
	s, ok := v.(py.Str)
	if !ok {
		return failure("ValueError", "Forbidden value: %s is not a string", py.Repr(v))
	}
	a.e.chat.say(role, string(s))
	return nil
}

// maxNoop bounds a wait that an agent asks for.
const maxNoop = time.Hour

func (a *actor) noop(ctx context.Context, args []py.Value) error {
	ms, ok := number(args[0])
	if _, isBool := args[0].(py.Bool); !ok || isBool {
		return failure("Error", "Page.wait_for_timeout: timeout: expected number, got %s", given(args[0]))
	}
	d := maxNoop
	if ms < float64(maxNoop/time.Millisecond) {
		d = time.Duration(math.Max(ms, 0) * float64(time.Millisecond))
	}
	return sleep(ctx, d)
}

// on finds the element of a bid and does something with it.
func (a *actor) on(ctx context.Context, bid py.Value, do func(*cdp.Element) error) error {
	s, ok := bid.(py.Str)
	if !ok {
		return failure("ValueError", "expected a string, got %s", py.Repr(bid))
	}
	e, err := a.page.Find(ctx, string(s))
	if err != nil {
		return err
	}
	return do(e)
}

// forced tries, and tries again by force when that took too long and the set of actions says so.
func (a *actor) forced(try func(force bool) error) error {
	err := try(false)
	if a.retry && cdp.Timeout(err) {
		return try(true)
	}
	return err
}

func (a *actor) click(ctx context.Context, args []py.Value, double bool) error {
	api := "Locator.click"
	if double {
		api = "Locator.dblclick"
	}
	return a.on(ctx, args[0], func(e *cdp.Element) error {
		held, err := modifiers(args[2], api)
		if err != nil {
			return err
		}
		b, err := button(args[1], api)
		if err != nil {
			return err
		}
		return a.forced(func(force bool) error {
			return e.Click(ctx, cdp.Click{Button: b, Modifiers: held, Double: double, Force: force})
		})
	})
}

func (a *actor) fill(ctx context.Context, args []py.Value) error {
	return a.on(ctx, args[0], func(e *cdp.Element) error {
		const api = "Locator.fill"
		if !truth(args[2]) {
			value, err := textOf(args[1], api, "value", "Frame.fill")
			if err != nil {
				return err
			}
			return a.forced(func(force bool) error { return e.Fill(ctx, value, force) })
		}
		return a.forced(func(force bool) error {
			if err := e.Clear(ctx); err != nil {
				return err
			}
			s, ok := args[1].(py.Str)
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
			}
			if all == "" {
				return nil
			}
			return e.Type(ctx, all[len(all)-last:])
		})
	})
}

func (a *actor) selectOption(ctx context.Context, args []py.Value) error {
	return a.on(ctx, args[0], func(e *cdp.Element) error {
		wanted, err := options(args[1])
		if err != nil {
			return err
		}
		return a.forced(func(force bool) error { return e.SelectOption(ctx, wanted, force) })
	})
}

func (a *actor) dragAndDrop(ctx context.Context, args []py.Value) error {
	hover := func(e *cdp.Element) error { return e.Hover(ctx, false) }
	return each(
		func() error { return a.on(ctx, args[0], hover) },
		func() error { return a.page.MouseDown(ctx, "left") },
		func() error { return a.on(ctx, args[1], hover) },
		func() error { return a.page.MouseUp(ctx, "left") })
}

func (a *actor) upload(ctx context.Context, v py.Value, trigger func(context.Context) error) error {
	paths, wrong := files(v)
	if wrong == nil {
		return a.page.Upload(ctx, paths, trigger)
	}
	// The chooser has to open before anything is said of the files; a file that cannot be there leaves the page's choice alone.
	err := a.page.Upload(ctx, []string{""}, trigger)
	var f *cdp.Failure
	if errors.As(err, &f) && strings.HasPrefix(f.Text, "FileChooser.set_files: ") {
		return wrong
	}
	return err
}

// mouse moves to a place and does something with a button there.
func (a *actor) mouse(ctx context.Context, args []py.Value, api string, do func(*cdp.Page, context.Context, string) error) error {
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

func (a *actor) mouseClick(ctx context.Context, args []py.Value, api string, double bool) error {
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

// typing is a call with a text for the keyboard.
func typing(api, param string, do func(*cdp.Page, context.Context, string) error) deed {
	return func(a *actor, ctx context.Context, args []py.Value) error {
		s, err := text(args[0], api, param)
		if err != nil {
			return err
		}
		return do(a.page, ctx, s)
	}
}

// turn makes another page the one that calls act on.
func (a *actor) turn(ctx context.Context, p *cdp.Page) error {
	a.page = p
	return p.Report(ctx)
}

func (a *actor) tabClose(ctx context.Context, _ []py.Value) error {
	if err := a.page.Close(ctx); err != nil {
		return err
	}
	if all := a.e.context.Pages(); len(all) > 0 {
		return a.turn(ctx, all[len(all)-1])
	}
	p, err := a.e.context.NewPage(ctx)
	if err != nil {
		return err
	}
	return a.turn(ctx, p)
}

func (a *actor) tabFocus(ctx context.Context, args []py.Value) error {
	all := a.e.context.Pages()
	i, err := index(args[0], len(all))
	if err != nil {
		return err
	}
	if err := all[i].BringToFront(ctx); err != nil {
		return err
	}
	return a.turn(ctx, all[i])
}
