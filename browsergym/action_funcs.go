package browsergym

import (
	"context"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// An actionFunc executes a call with bound arguments.
type actionFunc func(a *actor, ctx context.Context, args []pyrepr.Value) error

var actionFuncs map[string]actionFunc

func init() { // not a literal, to avoid an initialization cycle
	actionFuncs = map[string]actionFunc{
		"noop": (*actor).noop,
		"send_msg_to_user": func(a *actor, _ context.Context, args []pyrepr.Value) error {
			return a.sendMessage(Assistant, args[0])
		},
		"report_infeasible": func(a *actor, _ context.Context, args []pyrepr.Value) error {
			err := a.sendMessage(Infeasible, args[0])
			a.e.infeasible = a.e.infeasible || err == nil
			return err
		},
		"scroll": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			d, err := scaled(args, a.scale())
			if err != nil {
				return err
			}
			return a.page.Wheel(ctx, d[0], d[1])
		},
		"fill":          (*actor).fill,
		"select_option": (*actor).selectOption,
		"click": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.click(ctx, args, false)
		},
		"dblclick": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.click(ctx, args, true)
		},
		"hover": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.withElement(ctx, args[0], func(e *cdp.Element) error {
				return a.withForce(func(force bool) error { return e.Hover(ctx, force) })
			})
		},
		"press": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.withElement(ctx, args[0], func(e *cdp.Element) error {
				keys, err := textOf(args[1], "Locator.press", "key", "Frame.press")
				if err != nil {
					return err
				}
				return e.Press(ctx, keys)
			})
		},
		"focus": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.withElement(ctx, args[0], func(e *cdp.Element) error { return e.Focus(ctx) })
		},
		"clear": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.withElement(ctx, args[0], func(e *cdp.Element) error { return e.Clear(ctx) })
		},
		"drag_and_drop": (*actor).dragAndDrop,
		"upload_file": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.withElement(ctx, args[0], func(e *cdp.Element) error {
				return a.upload(ctx, args[1], func(ctx context.Context) error { return e.Click(ctx, cdp.Click{}) })
			})
		},
		"scroll_at": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			d, err := scaled(args, a.scale())
			if err != nil {
				return err
			}
			return each(
				func() error { return a.page.MouseMove(ctx, d[0], d[1]) },
				func() error { return a.page.Wheel(ctx, d[2], d[3]) })
		},
		"mouse_move": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			d, err := scaled(args, a.scale())
			if err != nil {
				return err
			}
			return a.page.MouseMove(ctx, d[0], d[1])
		},
		"mouse_down": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.mouse(ctx, args, "Mouse.down", (*cdp.Page).MouseDown)
		},
		"mouse_up": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.mouse(ctx, args, "Mouse.up", (*cdp.Page).MouseUp)
		},
		"mouse_click": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.mouseClick(ctx, args, "Mouse.click", false)
		},
		"mouse_dblclick": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			return a.mouseClick(ctx, args, "Mouse.dblclick", true)
		},
		"mouse_drag_and_drop": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
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
		"mouse_upload_file": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			d, err := scaled(args[:2], a.scale())
			if err != nil {
				return err
			}
			return a.upload(ctx, args[2],
				func(ctx context.Context) error { return a.page.MouseClick(ctx, d[0], d[1], "left", false) })
		},
		"keyboard_press":       typing("Keyboard.press", "key", (*cdp.Page).KeyPress),
		"keyboard_down":        typing("Keyboard.down", "key", (*cdp.Page).KeyDown),
		"keyboard_up":          typing("Keyboard.up", "key", (*cdp.Page).KeyUp),
		"keyboard_type":        typing("Keyboard.type", "text", (*cdp.Page).TypeText),
		"keyboard_insert_text": typing("Keyboard.insert_text", "text", (*cdp.Page).InsertText),
		"goto": func(a *actor, ctx context.Context, args []pyrepr.Value) error {
			url, err := textOf(args[0], "Page.goto", "url", "Frame.goto")
			if err != nil {
				return err
			}
			return a.page.Goto(ctx, url)
		},
		"go_back":    func(a *actor, ctx context.Context, _ []pyrepr.Value) error { return a.page.Back(ctx) },
		"go_forward": func(a *actor, ctx context.Context, _ []pyrepr.Value) error { return a.page.Forward(ctx) },
		"new_tab": func(a *actor, ctx context.Context, _ []pyrepr.Value) error {
			p, err := a.e.context.NewPage(ctx)
			if err != nil {
				return err
			}
			return a.switchTo(ctx, p)
		},
		"tab_close": (*actor).tabClose,
		"tab_focus": (*actor).tabFocus,
	}
}
