package cdp

import (
	"context"
	"encoding/json"
)

// A Place is where an element is in the page's viewport.
type Place struct {
	X, Y, Width, Height float64
	// at least half of it is in view; as long as it was never observed: nothing covers its corners
	Top bool
}

// ScrollIntoView brings the element into view, once it is still.
func (e *Element) ScrollIntoView(ctx context.Context) error {
	return e.act(ctx, "Locator.scroll_into_view_if_needed", func(pr *progress, a *aim) (outcome, error) {
		return e.retry(pr, "scroll into view", false, func(n int) (outcome, error) {
			pr.say("  waiting for element to be stable")
			if out, err := e.p.verdict(pr, a.tools, "states", []string{"stable"}, e.p.c.opts.FixedPauses); err != nil ||
				out != done {
				return out, err
			}
			return e.scroll(pr, a, scrolls[n%len(scrolls)])
		})
	})
}

// Place tells where the element is; nil when it is nowhere to be seen.
func (e *Element) Place(ctx context.Context) (*Place, error) {
	const api = "Locator.bounding_box"
	_, object, f, err := e.resolve(ctx)
	if err != nil {
		return nil, e.p.ended(api, err)
	}
	if f.N == 0 {
		return nil, nil
	}
	raw, err := e.p.call(ctx, "DOM.getBoxModel", map[string]any{"objectId": object})
	if err != nil {
		return nil, nil // it has no box
	}
	var m struct{ Model struct{ Border [8]float64 } }
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	b := m.Model.Border
	p := &Place{X: min(b[0], b[2], b[4], b[6]), Y: min(b[1], b[3], b[5], b[7])}
	p.Width, p.Height = max(b[0], b[2], b[4], b[6])-p.X, max(b[1], b[3], b[5], b[7])-p.Y
	q, err := e.p.c.b.Start(e.p.session, "Runtime.callFunctionOn",
		invoke{Object: object, ByValue: true, Function: `function() {
		const seen = this.getAttribute('browsergym_visibility_ratio');
		if (seen !== null) return Number(seen) >= 0.5;
		const r = this.getBoundingClientRect();
		return [[r.left + 1, r.top + 1], [r.right - 1, r.top + 1], [r.left + 1, r.bottom - 1], [r.right - 1, r.bottom - 1]].every(([x, y]) => {
			const hit = this.getRootNode().elementFromPoint(x, y);
			return hit && this.contains(hit);
		});
	}`})
	if err != nil {
		return nil, err
	}
	if err := q.value(ctx, &p.Top); err != nil {
		return nil, e.p.ended(api, err)
	}
	return p, nil
}
