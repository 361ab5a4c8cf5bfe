package cdp

import (
	"encoding/json"
	"math"
	"strings"
	"time"
)

type point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// scrolls are the ways to scroll an element into view, one per attempt, because a fixed element may
// cover it after the first.
var scrolls = []map[string]string{nil, {"block": "end", "inline": "end"}, {"block": "center", "inline": "center"},
	{"block": "start", "inline": "start"}}

// pointerAction performs a mouse action on the element.
func (e *Element) pointerAction(pr *progress, a *target, name string, enabled, force bool, modifiers []string,
	act func(x, y float64) error) (outcome, error) {
	states, said := []string{"visible", "stable"}, "visible and stable"
	if enabled {
		states, said = []string{"visible", "enabled", "stable"}, "visible, enabled and stable"
	}
	return e.retry(pr, name, force, func(n int) (outcome, error) {
		how := scrolls[n%len(scrolls)]
		if e.f.parent != nil { // so that its frame is in view and drawn
			_, _ = e.scroll(pr, a, how)
		}
		if !force {
			pr.logf("  waiting for element to be %s", said)
			out, err := e.p.callOutcome(pr, a.tools, "states", states, e.p.c.opts.FixedPauses, e.isStill(pr))
			if err != nil || out != done {
				return out, err
			}
			pr.logf("  element is %s", said)
		}
		pr.logf("  scrolling into view if needed")
		if err := pr.deadlineError(); err != nil {
			return outcome{}, err
		}
		at, out, err := e.clickPoint(pr, a, how)
		if err != nil || out != done {
			return out, err
		}
		if force {
			pr.logf("  forcing action")
		} else if out, err := e.hitTest(pr, a, name, at); err != nil || out != done {
			return out, err
		} else {
			pr.cleanups = append(pr.cleanups[:0], func() { // do not wait, because the page may hang
				e.p.sendMethod(a.tools, "unexpect")
			})
		}
		out, err = e.p.waitNavigations(pr, func() (outcome, error) {
			if err := pr.deadlineError(); err != nil {
				return outcome{}, err
			}
			var restore []string
			if modifiers != nil {
				var err error
				if restore, err = e.p.setModifiers(pr, modifiers); err != nil {
					return outcome{}, err
				}
			}
			pr.logf("  performing %s action", name)
			pr.startInput()
			if err := act(at.X, at.Y); err != nil {
				return outcome{}, err
			}
			if modifiers != nil {
				if _, err := e.p.setModifiers(pr, restore); err != nil {
					return outcome{}, err
				}
			}
			if !force {
				var met struct {
					Blocked string
					Busy    float64
				}
				err := e.p.callMethod(pr, a.tools, "unexpect", &met)
				pr.cleanups = pr.cleanups[:0]
				// caused by the page, not by the machine
				pr.left -= time.Duration(met.Busy * float64(time.Millisecond))
				if err := pr.deadlineError(); err != nil {
					return outcome{}, err
				}
				// otherwise the action has loaded a new document
				if err == nil && met.Blocked != "" {
					return outcome{"blocked", met.Blocked}, nil
				}
			}
			pr.logf("  %s action done", name)
			pr.logf("  waiting for scheduled navigations to finish")
			return done, nil
		})
		if err == nil && out == done {
			pr.logf("  navigations have finished")
		}
		return out, err
	})
}

// isStill reports whether nothing on the page moves by itself, so the element is stable.
func (e *Element) isStill(pr *progress) (yes bool) {
	e.p.c.mu.Lock()
	known := e.f.markObject != "" && e.f.parent == nil && len(e.p.requests) == 0
	e.p.c.mu.Unlock()
	if !known || e.p.c.opts.FixedPauses {
		return false
	}
	var b batch
	q := b.object(e.p, e.f, "still", false)
	return b.err == nil && q.value(pr, &yes) == nil && yes
}

// scroll scrolls the element into view.
func (e *Element) scroll(pr *progress, a *target, how map[string]string) (outcome, error) {
	q, err := e.startScroll(a, how)
	if err != nil {
		return outcome{}, err
	}
	return scrolled(q, pr)
}

func (e *Element) startScroll(a *target, how map[string]string) (*Pending, error) {
	if how != nil {
		return e.p.startMethod(a.tools, "scroll", how)
	}
	return e.p.c.b.Start(e.p.session, "DOM.scrollIntoViewIfNeeded", map[string]any{"objectId": a.object})
}

func scrolled(q *Pending, pr *progress) (outcome, error) {
	err := q.value(pr, nil)
	switch {
	case err == nil:
		return done, nil
	case strings.Contains(err.Error(), "Node does not have a layout object"):
		return outcome{kind: "invisible"}, nil
	case strings.Contains(err.Error(), "Node is detached from document"):
		return gone, nil
	}
	return outcome{}, err
}

// clickPoint scrolls the element into view and returns where to click it.
func (e *Element) clickPoint(pr *progress, a *target, how map[string]string) (at point, out outcome, err error) {
	top, err := e.p.tools(pr, e.p.mainFrame())
	if err != nil {
		return at, out, err
	}
	scroll, err := e.startScroll(a, how)
	if err != nil {
		return at, out, err
	}
	// request both at once and wait for the responses in order
	quads, err := e.p.c.b.Start(e.p.session, "DOM.getContentQuads", map[string]any{"objectId": a.object})
	if err != nil {
		return at, out, err
	}
	window, err := e.p.startMethod(top, "size")
	if err != nil {
		return at, out, err
	}
	if out, err = scrolled(scroll, pr); err != nil || out != done {
		return at, out, err
	}
	pr.logf("  done scrolling")
	var size struct{ Width, Height float64 }
	err = window.value(pr, &size)
	raw, qerr := quads.Wait(pr)
	if err != nil {
		return at, out, err
	}
	var q struct{ Quads [][8]float64 }
	if qerr == nil {
		qerr = json.Unmarshal(raw, &q)
	}
	if qerr != nil && !strings.Contains(qerr.Error(), "Could not compute content quads") {
		return at, out, qerr
	}
	if len(q.Quads) == 0 {
		return at, outcome{kind: "invisible"}, nil
	}
	for _, quad := range q.Quads {
		if p, ok := quadCenter(quad, size.Width, size.Height); ok {
			return p, done, nil
		}
	}
	return at, outcome{kind: "outside"}, nil
}

// quadCenter returns the center of the visible part of a quad, if there is one.
func quadCenter(q [8]float64, width, height float64) (at point, ok bool) {
	var area float64
	for i := 0; i < 8; i += 2 {
		q[i], q[i+1] = min(max(q[i], 0), width), min(max(q[i+1], 0), height)
	}
	for i := 0; i < 8; i += 2 {
		j := (i + 2) % 8
		area += (q[i]*q[j+1] - q[j]*q[i+1]) / 2
		at.X += q[i] / 4
		at.Y += q[i+1] / 4
	}
	at.X, at.Y = roundCoordinate(at.X), roundCoordinate(at.Y)
	return at, math.Abs(area) > 0.99
}

// roundCoordinate truncates a coordinate to two digits and moves it away from the middle between
// two pixels, which browsers round in either direction.
func roundCoordinate(v float64) float64 {
	if f := v - math.Floor(v); f > 0.49 && f < 0.51 {
		v -= 0.02
	}
	return math.Trunc(v*100) / 100
}

// hitTest checks that a click at a point hits the element, through all frames around it, and starts
// to watch for events that hit another element.
func (e *Element) hitTest(pr *progress, a *target, name string, at point) (outcome, error) {
	kind := "mouse"
	if name == "hover" {
		kind = "hover"
	}
	inner := &at
	if e.f.parent != nil {
		var out outcome
		var err error
		if inner, out, err = e.p.hitTestFrames(pr, e.f, at); err != nil || out != done {
			return out, err
		}
	}
	return e.p.callOutcome(pr, a.tools, "expect", kind, inner)
}

// hitTestFrames checks that a point in the viewport hits the elements of a frame and its ancestors.
// It returns the point in the frame's coordinates, nil if they cannot be computed.
func (p *Page) hitTestFrames(pr *progress, f *frame, at point) (*point, outcome, error) {
	type step struct {
		tools, object string
		at            point // in the frame below
	}
	var steps []step
	for ; f.parent != nil; f = f.parent {
		tools, object, err := p.frameElement(pr, f)
		if err != nil {
			return nil, gone, nil
		}
		box, err := p.call(pr, "DOM.getBoxModel", map[string]any{"objectId": object})
		if err != nil {
			return nil, gone, nil
		}
		var m struct{ Model struct{ Border [8]float64 } }
		if err := json.Unmarshal(box, &m); err != nil {
			return nil, gone, err
		}
		var in *struct {
			Left, Top   float64
			Transformed bool
		}
		q, err := p.c.b.Start(p.session, "Runtime.callFunctionOn",
			callFunction{Function: "function(e){return this.inset(e)}", Object: tools,
				Arguments: []argument{{Object: object}}, ByValue: true})
		if err != nil {
			return nil, gone, err
		}
		if err := q.value(pr, &in); err != nil || in == nil {
			return nil, gone, pr.deadlineError()
		}
		if in.Transformed {
			return nil, done, nil
		}
		b := m.Model.Border
		x, y := min(b[0], b[2], b[4], b[6]), min(b[1], b[3], b[5], b[7])
		steps = append(steps, step{tools, object, point{at.X - x - in.Left, at.Y - y - in.Top}})
	}
	point := at
	for i := len(steps) - 1; i >= 0; i-- {
		s := steps[i]
		q, err := p.startMethod(s.tools, "blocked", objectRef(s.object), point.X, point.Y)
		if err != nil {
			return nil, gone, err
		}
		var text string
		if err := q.value(pr, &text); err != nil {
			return nil, gone, pr.deadlineError()
		}
		if text != "" {
			return nil, outcome{"blocked", text}, nil
		}
		point = s.at
	}
	return &point, done, nil
}

// frameElement returns a frame's element, in the isolated world of its parent frame.
func (p *Page) frameElement(pr *progress, f *frame) (tools, object string, err error) {
	if tools, err = p.tools(pr, f.parent); err != nil {
		return "", "", err
	}
	owner, err := p.owner(pr, f)
	if err != nil {
		return "", "", err
	}
	p.c.mu.Lock()
	world := f.parent.isolatedContext
	p.c.mu.Unlock()
	raw, err := p.call(pr, "DOM.resolveNode", map[string]any{"backendNodeId": owner, "executionContextId": world})
	if err != nil {
		return "", "", err
	}
	var r struct{ Object remoteObject }
	if err := json.Unmarshal(raw, &r); err != nil {
		return "", "", err
	}
	return tools, r.Object.Object, nil
}

// waitNavigations calls act and waits until the main frame's navigations that it started commit or
// fail.
func (p *Page) waitNavigations(pr *progress, act func() (outcome, error)) (outcome, error) {
	p.c.mu.Lock()
	p.navigating = nil
	p.c.mu.Unlock()
	out, err := act()
	if err != nil {
		return out, err
	}
	// everything sent before has arrived
	if _, err := p.call(pr, "Page.enable", nil); err != nil && pr.deadlineError() != nil {
		return out, pr.deadlineError()
	}
	return out, p.c.wait(pr, func() (bool, error) { return len(p.navigating) == 0 || p.closed || p.crashed, nil })
}
