package cdp

import (
	"context"
	"encoding/json"
	"slices"
)

// selected waits until the page has been told that the element's text is selected, if it listens: browsers tell it with the next frame, and what is
// put in the text's place has to come after that. Pages that do not listen have nothing to wait for.
func (e *Element) selected(ctx context.Context, a *aim) error {
	if !e.p.c.opts.FixedPauses {
		if heard, err := e.listened(ctx, a, "select", "selectionchange"); err == nil && !heard {
			return nil
		}
	}
	return e.p.ask(ctx, a.tools, "drawn", nil)
}

// listened reports whether the page listens to events of one of these types where those of the element pass.
func (e *Element) listened(ctx context.Context, a *aim, types ...string) (bool, error) {
	world, err := e.p.context(ctx, e.f, func(f *frame) int { return f.world })
	if err != nil {
		return false, err
	}
	const group = "listened"
	defer e.p.c.b.Send(e.p.session, "Runtime.releaseObjectGroup", map[string]any{"objectGroup": group})
	var b batch
	path := b.start(e.p, "Runtime.callFunctionOn", invoke{Function: "function(){return this.path()}", Object: a.tools, Group: group})
	window := b.start(e.p, "Runtime.evaluate", evaluate{Expression: "self", Context: world, Group: group}) // which knows only the listeners of its own world
	if b.err != nil {
		return false, b.err
	}
	nodes, err := path.remote(ctx)
	if err != nil {
		return false, err
	}
	top, err := window.remote(ctx)
	if err != nil {
		return false, err
	}
	raw, err := e.p.call(ctx, "Runtime.getProperties", map[string]any{"objectId": nodes.Object, "ownProperties": true})
	if err != nil {
		return false, err
	}
	var all struct {
		Result []struct{ Value remote }
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return false, err
	}
	asked := []*Pending{b.start(e.p, "DOMDebugger.getEventListeners", map[string]any{"objectId": top.Object})}
	for _, n := range all.Result {
		if n.Value.Object != "" {
			asked = append(asked, b.start(e.p, "DOMDebugger.getEventListeners", map[string]any{"objectId": n.Value.Object, "depth": 1, "pierce": true}))
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
		var l struct{ Listeners []struct{ Type string } }
		if err := json.Unmarshal(raw, &l); err != nil {
			return false, err
		}
		for _, l := range l.Listeners {
			heard = heard || slices.Contains(types, l.Type)
		}
	}
	return heard, nil
}
