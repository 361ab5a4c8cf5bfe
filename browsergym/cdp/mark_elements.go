package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// errNoBid reports that a frame's element has no bid, so the elements inside cannot get one.
var errNoBid = &Failure{"MarkingError", "Cannot mark a child frame without a bid."}

// installMarkScript evaluates mark_elements.js in the isolated world of frames without it.
func (p *Page) installMarkScript(ctx context.Context, frames []*frame) error {
	type made struct {
		f *frame
		w int
		q *Pending
	}
	var all []made
	for _, f := range frames {
		w, err := p.context(ctx, f, func(f *frame) int { return f.isolatedContext })
		if errors.Is(err, errNoFrame) {
			continue
		}
		if err != nil {
			return err
		}
		p.c.mu.Lock()
		have := f.markObject != ""
		p.c.mu.Unlock()
		if have {
			continue
		}
		q, err := p.c.b.Start(p.session, "Runtime.evaluate", evaluate{Expression: marksScript, Context: w})
		if err != nil {
			return err
		}
		all = append(all, made{f, w, q})
	}
	for _, m := range all {
		raw, err := m.q.Wait(ctx)
		if err != nil {
			return err
		}
		r, err := evalResult(raw)
		if err != nil {
			return err
		}
		p.c.mu.Lock()
		if m.f.isolatedContext == m.w {
			m.f.markObject = r.Object
		}
		p.c.mu.Unlock()
	}
	return nil
}

// A childFrame is a frame whose element is being described.
type childFrame struct {
	f       *frame
	element *Pending
}

// mark marks the elements of all frames, level by level, because a frame's prefix is the bid of its
// element. It returns the marked frames and the calls that are still pending.
func (p *Page) mark(ctx context.Context, o ObserveOptions, lenient bool,
	seen *Observation) (marked []*frame, waits []*Pending, err error) {
	main := p.mainFrame()
	if main == nil {
		return nil, nil, errNoFrame
	}
	level, bids := []*frame{main}, []string{""}
	for len(level) > 0 {
		if err := p.installMarkScript(ctx, level); err != nil {
			return nil, nil, err
		}
		kids := p.childrenOf(level)
		if err := p.resolveOwners(ctx, kids); err != nil {
			return nil, nil, err
		}
		var b batch // describe the elements of the next level's frames as soon as they have bids
		var marks []*Pending
		for i, f := range level {
			marks = append(marks, b.object(p, f, "mark", false, bids[i], o.AllTags))
			waits = append(waits, b.object(p, f, "settled", true, seenLimit.Milliseconds()))
			marked = append(marked, f)
		}
		var next []childFrame
		for _, f := range kids {
			if f.owner != 0 {
				next = append(next, childFrame{f,
					b.start(p, "DOM.describeNode", map[string]any{"backendNodeId": f.owner})})
			}
		}
		if b.err != nil {
			return nil, nil, b.err
		}
		for _, q := range marks {
			if err := q.value(ctx, nil); err != nil {
				return nil, nil, err
			}
		}
		if level, bids, err = p.frameBids(ctx, next, lenient, seen); err != nil {
			return nil, nil, err
		}
	}
	return marked, waits, nil
}

// childrenOf returns the child frames of frames.
func (p *Page) childrenOf(frames []*frame) (kids []*frame) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	for _, f := range frames {
		kids = append(kids, f.children...)
	}
	return kids
}

// frameBids returns the frames to mark, with the bids of their elements.
func (p *Page) frameBids(ctx context.Context, all []childFrame, lenient bool,
	seen *Observation) (frames []*frame, bids []string, err error) {
	for _, k := range all {
		raw, err := k.element.Wait(ctx)
		if transient(err) && p.isDetached(k.f) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		bid, why := frameBid(raw, k.f.id)
		p.c.mu.Lock()
		k.f.bid = bid
		p.c.mu.Unlock()
		switch {
		case why == sandboxed:
		case why != "":
			seen.Warnings = append(seen.Warnings, why)
		case bid == "" && !lenient:
			return nil, nil, errNoBid
		case bid == "":
			seen.Warnings = append(seen.Warnings, "Cannot mark a child frame without a bid. Skipping frame.")
		default:
			frames, bids = append(frames, k.f), append(bids, bid)
		}
	}
	return frames, bids, nil
}

// sandboxed is the reason to skip a frame that may not run scripts. It causes no warning.
const sandboxed = "sandboxed"

// frameBid returns the bid of a frame's element from the response of DOM.describeNode, or the
// reason why the frame is not marked.
func frameBid(raw []byte, id string) (bid, why string) {
	var d struct {
		Node struct {
			Frame      string   `json:"frameId"`
			Name       string   `json:"localName"`
			Attributes []string `json:"attributes"`
		} `json:"node"`
	}
	if json.Unmarshal(raw, &d) != nil || d.Node.Frame != id {
		return "", "Skipping frame: it is not the content of its element <" + d.Node.Name + ">."
	}
	for i := 0; i+1 < len(d.Node.Attributes); i += 2 {
		switch v := d.Node.Attributes[i+1]; d.Node.Attributes[i] {
		case "bid":
			bid = v
		case "sandbox":
			allowed := false
			for _, t := range strings.Fields(v) {
				allowed = allowed || t == "allow-scripts"
			}
			if !allowed {
				why = sandboxed
			}
		}
	}
	if bid != "" && why == "" && !isFrameBid(bid) {
		why = "Skipping frame: its element <" + d.Node.Name + "> is no iframe."
	}
	return bid, why
}

// isFrameBid reports whether a bid can be the prefix of a frame's bids: iframes have letters.
func isFrameBid(bid string) bool {
	for i := range len(bid) {
		if c := bid[i]; (c < 'a' || c > 'z') && (i == 0 || c < 'A' || c > 'Z') {
			return false
		}
	}
	return bid != ""
}

// resolveOwners looks up the elements of frames for which they are not known yet. A frame's element
// never changes.
func (p *Page) resolveOwners(ctx context.Context, frames []*frame) error {
	type asked struct {
		f *frame
		q *Pending
	}
	var all []asked
	for _, f := range frames {
		if f.owner != 0 {
			continue
		}
		q, err := p.c.b.Start(p.session, "DOM.getFrameOwner", map[string]any{"frameId": f.id})
		if err != nil {
			return err
		}
		all = append(all, asked{f, q})
	}
	for _, a := range all {
		raw, err := a.q.Wait(ctx)
		if transient(err) && p.isDetached(a.f) {
			continue
		}
		if err != nil {
			return err
		}
		var o struct {
			Backend int `json:"backendNodeId"`
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			return err
		}
		a.f.owner = o.Backend
	}
	return nil
}

// isDetached reports whether a frame was removed from its page.
func (p *Page) isDetached(f *frame) bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return f.detached
}

func (p *Page) owner(ctx context.Context, f *frame) (int, error) {
	if err := p.resolveOwners(ctx, []*frame{f}); err != nil {
		return 0, err
	}
	return f.owner, nil
}

// focused follows the focus through the frames.
func (p *Page) focused(ctx context.Context, q *Pending) (string, error) {
	f := p.mainFrame()
	for depth := 0; ; depth++ {
		var at *struct {
			Bid   string
			Frame bool
		}
		if err := q.value(ctx, &at); err != nil {
			return "", err
		}
		if at == nil {
			return "", nil
		}
		var inner *frame
		p.c.mu.Lock()
		if at.Frame && at.Bid != "" && depth < maxBidFrames {
			for _, k := range f.children {
				if k.bid == at.Bid {
					inner = k
				}
			}
		}
		p.c.mu.Unlock()
		if inner == nil {
			return at.Bid, nil
		}
		f = inner
		if err := p.installMarkScript(ctx, []*frame{f}); err != nil {
			return "", err
		}
		var b batch
		if q = b.object(p, f, "focused", false); b.err != nil {
			return "", b.err
		}
	}
}

// unmark removes the marks from all frames, as far as possible.
func (p *Page) unmark(ctx context.Context) {
	var all []*Pending
	for _, f := range p.allFrames() {
		var b batch
		if q := b.object(p, f, "unmark", false); b.err == nil {
			all = append(all, q)
		}
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, q := range all {
		q.Wait(short)
	}
}

// waitSeen waits until the IntersectionObservers have visited all marked elements.
func (p *Page) waitSeen(ctx context.Context, waits []*Pending, o *Observation) error {
	for _, q := range waits {
		var all bool
		if err := q.value(ctx, &all); err != nil {
			return err
		}
		if !all {
			o.Warnings = append(o.Warnings,
				fmt.Sprintf("Frame marking: not all elements have been visited by the intersection_observer "+
					"after %d ms", seenLimit.Milliseconds()))
		}
	}
	return nil
}
