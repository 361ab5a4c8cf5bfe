package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
)

// selected waits until the page has been told that the element's text is selected, if it listens: browsers tell it with the next frame, and what is
// put in the text's place has to come after that. Pages that do not listen have nothing to wait for.
func (e *Element) selected(ctx context.Context, a *aim, h *hearing) error {
	heard, err := h.of(ctx, "select", "selectionchange")
	switch {
	case err != nil: // not known
		return e.p.ask(ctx, a.tools, "drawn", nil, 50)
	case heard:
		return e.p.ask(ctx, a.tools, "drawn", nil, 1000)
	}
	return nil
}

// A hearing is a look at who listens where the events of an element pass.
type hearing struct {
	p            *Page
	path, window *Pending
	err          error
}

// hears begins to look, and sends no more than goes with other calls. The look has to be ended.
func (e *Element) hears(ctx context.Context, a *aim) *hearing {
	h := &hearing{p: e.p, err: errors.ErrUnsupported}
	if e.p.c.opts.FixedPauses {
		return h
	}
	var world int
	if world, h.err = e.p.context(ctx, e.f, func(f *frame) int { return f.world }); h.err != nil {
		return h
	}
	var b batch
	h.path = b.start(e.p, "Runtime.callFunctionOn", invoke{Function: "function(){return this.path()}", Object: a.tools, Group: hearings})
	h.window = b.start(e.p, "Runtime.evaluate", evaluate{Expression: "self", Context: world, Group: hearings}) // is asked in the page's world, since it tells of that one's listeners only
	h.err = b.err
	return h
}

// hearings names what hearings refer to.
const hearings = "hearings"

func (h *hearing) end() {
	if h.path != nil {
		h.p.c.b.Send(h.p.session, "Runtime.releaseObjectGroup", map[string]any{"objectGroup": hearings})
	}
}

// of reports whether the page listens to events of one of these types.
func (h *hearing) of(ctx context.Context, types ...string) (bool, error) {
	if h.err != nil {
		return false, h.err
	}
	path, err := h.path.remote(ctx)
	if err != nil {
		return false, err
	}
	window, err := h.window.remote(ctx)
	if err != nil {
		return false, err
	}
	raw, err := h.p.call(ctx, "Runtime.getProperties", map[string]any{"objectId": path.Object, "ownProperties": true})
	if err != nil {
		return false, err
	}
	var nodes struct {
		Result []struct{ Value remote }
	}
	if err := json.Unmarshal(raw, &nodes); err != nil {
		return false, err
	}
	var b batch
	asked := []*Pending{b.start(h.p, "DOMDebugger.getEventListeners", map[string]any{"objectId": window.Object})}
	for _, n := range nodes.Result {
		if n.Value.Object != "" { // the list's length has none
			asked = append(asked, b.start(h.p, "DOMDebugger.getEventListeners", map[string]any{"objectId": n.Value.Object, "depth": 1, "pierce": true}))
		}
	}
	if b.err != nil {
		return false, b.err
	}
	heard := false
	for _, q := range asked {
		raw, err := q.Wait(ctx)
		if err != nil {
			return false, err
		}
		var all struct{ Listeners []struct{ Type string } }
		if err := json.Unmarshal(raw, &all); err != nil {
			return false, err
		}
		for _, l := range all.Listeners {
			heard = heard || slices.Contains(types, l.Type)
		}
	}
	return heard, nil
}
