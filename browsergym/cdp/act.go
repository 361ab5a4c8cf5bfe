package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Click are the options of a click on an element. The zero value is a left click.
type Click struct {
	Button    string   // left, middle, right; "" means left
	Modifiers []string // Alt, Control, ControlOrMeta, Meta, Shift; held during the click, all others are released
	Double    bool
	Force     bool // skip the checks that the element is visible, enabled, stable and on top
}

// Click waits until the element is visible, enabled, stable and on top, moves the mouse there, and
// clicks.
func (e *Element) Click(ctx context.Context, o Click) error {
	api, name, times := "Locator.click", "click", 1
	if o.Double {
		api, name, times = "Locator.dblclick", "dblclick", 2
	}
	if o.Button == "" {
		o.Button = "left"
	}
	if o.Modifiers == nil {
		o.Modifiers = []string{}
	}
	return e.act(ctx, api, func(pr *progress, a *target) (outcome, error) {
		return e.pointerAction(pr, a, name, true, o.Force, o.Modifiers,
			func(x, y float64) error { return e.p.click(pr, x, y, o.Button, times) })
	})
}

// Hover waits until the element is visible, stable and on top, and moves the mouse there.
func (e *Element) Hover(ctx context.Context, force bool) error {
	return e.act(ctx, "Locator.hover", func(pr *progress, a *target) (outcome, error) {
		return e.pointerAction(pr, a, "hover", false, force, nil,
			func(x, y float64) error { return e.p.move(pr, x, y) })
	})
}

// Fill replaces the content of an input, a text area or an editable element by a text, as one
// change.
func (e *Element) Fill(ctx context.Context, value string, force bool) error {
	return e.fill(ctx, "Locator.fill", value, force)
}

// selectedLimit bounds the wait for the next frame after an element's text is selected. Chromium
// sends the selection events with that frame, and the text must be replaced after them. We wait
// whether or not the page listens: DOMDebugger.getEventListeners has crashed renderers.
const selectedLimit = time.Second

// Clear empties an input, a text area or an editable element.
func (e *Element) Clear(ctx context.Context) error { return e.fill(ctx, "Locator.clear", "", false) }

func (e *Element) fill(ctx context.Context, api, value string, force bool) error {
	return e.act(ctx, api, func(pr *progress, a *target) (outcome, error) {
		pr.logf("  fill(\"%s\")", value)
		return e.retry(pr, "fill", force, func(int) (outcome, error) {
			return e.p.waitNavigations(pr, func() (outcome, error) {
				if !force {
					pr.logf("  waiting for element to be visible, enabled and editable")
				}
				out, err := e.p.callOutcome(pr, a.tools, "fill", value, force)
				if err == nil && out.kind == "selected" {
					out.kind, err = "input", e.p.callMethod(pr, a.tools, "drawn", nil, selectedLimit.Milliseconds())
				}
				if err != nil || out.kind != "input" {
					return out, err
				}
				if value != "" {
					return done, e.p.insert(pr, value)
				}
				return done, e.p.pressKey(pr, "Delete")
			})
		})
	})
}

// SelectOption selects the options of a select element whose value or label is in the list, and
// deselects all others.
func (e *Element) SelectOption(ctx context.Context, options []string, force bool) error {
	if options == nil {
		options = []string{}
	}
	return e.act(ctx, "Locator.select_option", func(pr *progress, a *target) (outcome, error) {
		return e.retry(pr, "select option", force, func(int) (outcome, error) {
			if !force {
				pr.logf("  waiting for element to be visible and enabled")
			}
			return e.p.callOutcome(pr, a.tools, "choose", options, force)
		})
	})
}

// Focus focuses the element.
func (e *Element) Focus(ctx context.Context) error {
	return e.act(ctx, "Locator.focus", func(pr *progress, a *target) (outcome, error) {
		return e.p.callOutcome(pr, a.tools, "focus", false)
	})
}

// Press focuses the element and presses a key, or several held together ("Control+a").
func (e *Element) Press(ctx context.Context, keys string) error {
	return e.act(ctx, "Locator.press", func(pr *progress, a *target) (outcome, error) {
		pr.logf("elementHandle.press(\"%s\")", keys)
		return e.p.waitNavigations(pr, func() (outcome, error) {
			if out, err := e.p.callOutcome(pr, a.tools, "focus", true); err != nil || out != done {
				return out, err
			}
			return done, e.p.pressKey(pr, keys)
		})
	})
}

// Type focuses the element and types a text, key by key.
func (e *Element) Type(ctx context.Context, text string) error {
	return e.act(ctx, "Locator.type", func(pr *progress, a *target) (outcome, error) {
		pr.logf("elementHandle.type(\"%s\")", text)
		return e.p.waitNavigations(pr, func() (outcome, error) {
			if out, err := e.p.callOutcome(pr, a.tools, "focus", true); err != nil || out != done {
				return out, err
			}
			return done, e.p.typeText(pr, text)
		})
	})
}

// target is the element that one attempt acts on.
type target struct {
	tools  string
	object string
}

// outcome is the result of an attempt.
type outcome struct {
	kind string // done, input, selected, gone, invisible, outside, options, blocked, missing
	text string
}

var (
	done = outcome{kind: "done"}
	gone = outcome{kind: "gone"}
)

// resolvePauses are the pauses before each attempt to find an element, and retryPauses those before
// each attempt to act on it. The last value repeats.
var (
	resolvePauses = []time.Duration{0, 0, 20, 50, 100, 100, 500} // milliseconds
	retryPauses   = []time.Duration{0, 20, 100, 100, 500}
)

// act waits for the element and calls run. It repeats both if the element or its document is
// replaced meanwhile.
func (e *Element) act(ctx context.Context, api string, run func(*progress, *target) (outcome, error)) error {
	e.p.acts.Lock()
	defer e.p.acts.Unlock()
	return e.p.withWaitTimeout(ctx, api, e.p.c.opts.ActionTimeout, func(pr *progress) error {
		pr.logf("waiting for %s", e.shown)
		for i := 0; ; i++ {
			if err := pr.pause(resolvePauses[min(i, len(resolvePauses)-1)] * time.Millisecond); err != nil {
				return err
			}
			tools, object, f, err := e.resolve(pr)
			switch {
			case err == nil && f.N > 1:
				return permanentError{e.strictModeError(f)}
			case err == nil && f.N == 1:
				pr.logf("  locator resolved to %s", f.Shown[0])
				var out outcome
				if out, err = run(pr, &target{tools, object}); err == nil && out != gone {
					return nil
				}
				e.p.c.b.Send(e.p.session, "Runtime.releaseObject", map[string]any{"objectId": object})
				if err == nil {
					pr.logf("element was detached from the DOM, retrying")
				}
			}
			if err != nil && !e.retryable(pr, err) {
				return err
			}
		}
	})
}

// retryable reports whether to try again after err, while there is time.
func (e *Element) retryable(pr *progress, err error) bool {
	var f permanentError
	if pr.Err() != nil || errors.As(err, &f) || errors.Is(err, ErrClosed) || errors.Is(err, ErrGone) {
		return false
	}
	if _, ok := exceptionText(err); ok {
		return false
	}
	e.p.c.mu.Lock()
	defer e.p.c.mu.Unlock()
	return !e.f.detached
}

func (e *Element) strictModeError(f found) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Error: strict mode violation: %s resolved to %d elements:", e.shown, f.N)
	for i, s := range f.Shown {
		fmt.Fprintf(&b, "\n    %d) %s aka %s.nth(%d)", i+1, s, e.shown, i)
	}
	if len(f.Shown) < f.N {
		b.WriteString("\n    ...")
	}
	b.WriteString("\n")
	return b.String()
}

// retry repeats an action on an element until it succeeds or fails for good.
func (e *Element) retry(pr *progress, name string, force bool, try func(n int) (outcome, error)) (outcome, error) {
	for n := 0; ; n++ {
		if n == 0 {
			pr.logf("attempting %s action", name)
		} else {
			pr.logf("retrying %s action, attempt #%d", name, n)
			if d := retryPauses[min(n-1, len(retryPauses)-1)] * time.Millisecond; d > 0 {
				pr.logf("  waiting %dms", d.Milliseconds())
				if err := pr.pause(d); err != nil {
					return outcome{}, err
				}
			}
		}
		if err := pr.deadlineError(); err != nil {
			return outcome{}, err
		}
		out, err := try(n)
		if err != nil {
			return out, err
		}
		switch out.kind {
		case "invisible":
			if force {
				return out, permanentError{"Element is not visible"}
			}
			pr.logf("  element is not visible")
		case "outside":
			if force {
				return out, permanentError{"Element is outside of the viewport"}
			}
			pr.logf("  element is outside of the viewport")
		case "options":
			pr.logf("  did not find some options")
		case "blocked":
			pr.logf("  %s intercepts pointer events", out.text)
		case "missing":
			pr.logf("  element is not %s", out.text)
		default:
			return out, nil
		}
	}
}

// deadlineError returns an error if the call has no time left.
func (pr *progress) deadlineError() error {
	if pr.Err() != nil {
		return context.Cause(pr)
	}
	if pr.countsWaits && pr.left <= 0 {
		return errTimeout
	}
	return nil
}

// callOutcome calls a method of the tools object that returns an outcome.
func (p *Page) callOutcome(pr *progress, tools, method string, args ...any) (outcome, error) {
	var raw json.RawMessage
	if err := p.callMethod(pr, tools, method, &raw, args...); err != nil {
		return outcome{}, err
	}
	return parseOutcome(raw)
}

func parseOutcome(raw json.RawMessage) (outcome, error) {
	var s string
	if len(raw) > 0 && raw[0] == '"' {
		_ = json.Unmarshal(raw, &s)
		switch s {
		case "":
			return done, nil
		case "error:notconnected":
			return gone, nil
		case "error:optionsnotfound":
			return outcome{kind: "options"}, nil
		}
		return outcome{kind: s}, nil
	}
	var o struct{ Missing, Blocked, Error string }
	if len(raw) > 0 {
		_ = json.Unmarshal(raw, &o)
	}
	switch {
	case o.Error != "":
		return outcome{}, permanentError{"Error: " + o.Error}
	case o.Missing != "":
		return outcome{"missing", o.Missing}, nil
	case o.Blocked != "":
		return outcome{"blocked", o.Blocked}, nil
	}
	return done, nil
}
