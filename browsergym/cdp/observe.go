package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/browsergym/obs"
)

// ObserveOptions say what is taken of a page. The zero value is all that the reference takes.
type ObserveOptions struct {
	AllTags bool    // mark elements of any tag, not only those of standard HTML
	Scale   float64 // pixels of the screenshot for one of CSS, in which boxes are given; 0: 1
	Picture bool    // with a screenshot
	NoAX    bool    // without the accessibility tree, which is what takes longest on a large page
}

// An Observation is a page at one moment, as marked: all that the texts are made of.
type Observation struct {
	Snapshot   *obs.Snapshot   // of the DOM, without the marks' traces
	AX         *obs.AXTree     // of all frames, merged, as this browser gives it; nil when it was not asked for
	Properties *obs.Properties // of all marked elements
	Picture    []byte          // the viewport as PNG; nil when it was not asked for
	Focused    string          // bid of the element that has the focus; ""
	Warnings   []string        // what went not as it should
}

// tries and retryPause are the reference's: how often a page that changes under an observation is tried again, and how soon.
const (
	tries      = 5
	retryPause = 500 * time.Millisecond
	seenLimit  = time.Second // how long a frame's elements may take to be seen by its observer
)

// Observe marks all elements of the page, in all its frames, takes what the texts are made of, and takes the marks' traces out again. Bids stay. A
// page that goes away meanwhile is tried again, up to five times.
func (p *Page) Observe(ctx context.Context, o ObserveOptions) (*Observation, error) {
	p.acts.Lock()
	defer p.acts.Unlock()
	if o.Scale == 0 {
		o.Scale = 1
	}
	var warnings []string
	for left := tries - 1; ; left-- {
		seen, err := p.observe(ctx, o, left == 0)
		if err == nil && o.Picture && seen.Picture == nil {
			if seen.Picture, err = p.draw(ctx, o.Scale); err != nil {
				return nil, err
			}
		}
		if err == nil {
			seen.Warnings = append(warnings, seen.Warnings...)
			return seen, nil
		}
		if left == 0 || !transient(err) || ctx.Err() != nil {
			return nil, p.observed(err)
		}
		warnings = append(warnings, fmt.Sprintf("An error occurred while extracting the dom and axtree. Retrying (%d/%d tries left).\n%v", left, tries, err))
		p.unmark(ctx)
		if err := p.comeBack(ctx, tries-1-left); err != nil {
			return nil, err
		}
	}
}

// observed is why a page could not be observed, in the reference's words where it is the page's doing.
func (p *Page) observed(err error) error {
	var f *Failure
	if errors.As(err, &f) {
		return err
	}
	return p.ended("Frame.evaluate", err)
}

// comeBack waits for what has taken the place of a document that went away.
func (p *Page) comeBack(ctx context.Context, try int) error {
	if p.c.opts.FixedPauses {
		return pause(ctx, retryPause)
	}
	if err := pause(ctx, retryPause>>(tries-try)); err != nil { // a page that changes all the time gets longer and longer to come to rest
		return err
	}
	return p.waitFrame(ctx, p.mainFrame(), loaded, retryPause)
}

// errNoBid: the element that holds a frame has none, so the frame's elements could not be named.
var errNoBid = &Failure{"MarkingError", "Cannot mark a child frame without a bid."}

func (p *Page) observe(ctx context.Context, o ObserveOptions, lenient bool) (*Observation, error) {
	seen := &Observation{}
	frames, waits, err := p.mark(ctx, o, lenient, seen)
	if err != nil {
		return nil, err
	}
	var picture chan drawn
	if o.Picture && !p.c.opts.FixedPauses { // while elements are being seen: both wait for the page's next frames
		picture = make(chan drawn, 1)
		go func() {
			png, err := p.draw(ctx, o.Scale)
			picture <- drawn{png, err}
		}()
		defer func() { // nothing of it goes on when this returns
			if picture != nil {
				<-picture
			}
		}()
	}
	if err := p.seen(ctx, waits, seen); err != nil {
		return nil, err
	}
	// All travel together; the page answers them one after the other.
	var b batch
	snapshot := b.start(p, "DOMSnapshot.captureSnapshot", map[string]any{"computedStyles": []string{}, "includeDOMRects": true, "includePaintOrder": true})
	var trees []*Pending
	var ids []string
	if !o.NoAX {
		for _, f := range p.allFrames() {
			ids = append(ids, f.id)
			trees = append(trees, b.start(p, "Accessibility.getFullAXTree", map[string]string{"frameId": f.id}))
		}
	}
	focus := b.object(p, frames[0], "focused", false)
	var clean []*Pending
	for _, f := range frames {
		clean = append(clean, b.object(p, f, "unmark", false))
	}
	if b.err != nil {
		return nil, b.err
	}
	raw, err := snapshot.Wait(ctx)
	if err != nil {
		return nil, err
	}
	seen.Snapshot = new(obs.Snapshot)
	if err := json.Unmarshal(raw, seen.Snapshot); err != nil {
		return nil, fmt.Errorf("the browser's snapshot: %w", err)
	}
	seen.Snapshot.Clean()
	seen.Properties, _ = obs.PropertiesOf(seen.Snapshot, o.Scale)
	if !o.NoAX {
		content := contents(seen.Snapshot)
		all := make([]obs.AXTree, len(trees))
		for i, q := range trees {
			raw, err := q.Wait(ctx)
			if err != nil {
				return nil, err
			}
			if err := json.Unmarshal(raw, &all[i]); err != nil {
				return nil, fmt.Errorf("the browser's accessibility tree: %w", err)
			}
			all[i].FrameID = ids[i]
		}
		seen.AX = obs.Merge(all, func(backend int) string { return content[backend] })
	}
	if seen.Focused, err = p.focused(ctx, focus); err != nil {
		return nil, err
	}
	for _, q := range clean {
		if err := q.value(ctx, nil); err != nil && !transient(err) {
			return nil, err
		}
	}
	if picture != nil {
		d := <-picture
		picture = nil
		if d.err != nil {
			return nil, d.err
		}
		seen.Picture = d.png
	}
	return seen, nil
}

type drawn struct {
	png []byte
	err error
}

// seen waits until all elements that were marked have been seen by their frame's observer.
func (p *Page) seen(ctx context.Context, waits []*Pending, o *Observation) error {
	for _, q := range waits {
		var all bool
		if err := q.value(ctx, &all); err != nil {
			return err
		}
		if !all {
			o.Warnings = append(o.Warnings, fmt.Sprintf("Frame marking: not all elements have been visited by the intersection_observer after %d ms", seenLimit.Milliseconds()))
		}
	}
	return nil
}

// contents tells which frame an element holds, by its backend node id.
func contents(s *obs.Snapshot) map[int]string {
	m := map[int]string{}
	for i := range s.Documents {
		n := &s.Documents[i].Nodes
		for k, owner := range n.ContentDocumentIndex.Index {
			if k >= len(n.ContentDocumentIndex.Value) || owner < 0 || owner >= len(n.BackendNodeID) {
				continue
			}
			d := n.ContentDocumentIndex.Value[k]
			if d < 0 || d >= len(s.Documents) {
				continue
			}
			if id := s.Documents[d].FrameID; id >= 0 && id < len(s.Strings) {
				m[n.BackendNodeID[owner]] = s.Strings[id]
			}
		}
	}
	return m
}

// batch sends calls together and keeps the first error.
type batch struct{ err error }

func (b *batch) start(p *Page, method string, params any) *Pending {
	if b.err != nil {
		return nil
	}
	q, err := p.c.b.Start(p.session, method, params)
	b.err = err
	return q
}

// object calls a method of our object in the page's world of a frame.
func (b *batch) object(p *Page, f *frame, method string, await bool, args ...any) *Pending {
	p.c.mu.Lock()
	on := f.marks
	p.c.mu.Unlock()
	if on == "" && b.err == nil {
		b.err = errNoFrame
	}
	return b.start(p, "Runtime.callFunctionOn", invoke{Function: "function(...a){return this." + method + "(...a)}", Object: on, Arguments: arguments(args), ByValue: true, Await: await})
}

// prepare makes our object in the page's world of frames that have none yet.
func (p *Page) prepare(ctx context.Context, frames []*frame) error {
	type made struct {
		f *frame
		w int
		q *Pending
	}
	var all []made
	for _, f := range frames {
		w, err := p.context(ctx, f, func(f *frame) int { return f.world })
		if errors.Is(err, errNoFrame) {
			continue
		}
		if err != nil {
			return err
		}
		p.c.mu.Lock()
		have := f.marks != ""
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
		r, err := returned(raw)
		if err != nil {
			return err
		}
		p.c.mu.Lock()
		if m.f.world == m.w {
			m.f.marks = r.Object
		}
		p.c.mu.Unlock()
	}
	return nil
}

// mark marks the elements of all frames, level by level, since a frame's prefix is its element's bid. It returns the frames that were marked, and
// what is still to be waited for.
func (p *Page) mark(ctx context.Context, o ObserveOptions, lenient bool, seen *Observation) (marked []*frame, waits []*Pending, err error) {
	type job struct {
		f     *frame
		bid   string
		owner *Pending // asks for its element, once its parent is marked
	}
	level := []job{{f: p.mainFrame()}}
	for len(level) > 0 {
		frames := make([]*frame, len(level))
		for i, j := range level {
			frames[i] = j.f
		}
		if err := p.prepare(ctx, frames); err != nil {
			return nil, nil, err
		}
		var next []job
		for _, f := range frames {
			p.c.mu.Lock()
			for _, k := range f.kids {
				next = append(next, job{f: k})
			}
			p.c.mu.Unlock()
		}
		var kids []*frame
		for _, j := range next {
			kids = append(kids, j.f)
		}
		if err := p.owners(ctx, kids); err != nil {
			return nil, nil, err
		}
		var b batch
		var marks []*Pending
		for _, j := range level {
			marks = append(marks, b.object(p, j.f, "mark", false, j.bid, o.AllTags))
			waits = append(waits, b.object(p, j.f, "settled", true, seenLimit.Milliseconds()))
			marked = append(marked, j.f)
		}
		for i := range next {
			if next[i].f.owner != 0 {
				next[i].owner = b.start(p, "DOM.describeNode", map[string]any{"backendNodeId": next[i].f.owner})
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
		level = level[:0]
		skipped := map[*frame]bool{}
		for _, j := range next {
			if j.owner == nil || skipped[j.f.up] {
				skipped[j.f] = true
				continue
			}
			raw, err := j.owner.Wait(ctx)
			if err != nil {
				return nil, nil, err
			}
			bid, why := held(raw, j.f.id)
			p.c.mu.Lock()
			j.f.bid, j.f.skipped = bid, why != "" || bid == ""
			p.c.mu.Unlock()
			switch {
			case why == "sandboxed":
			case why != "":
				seen.Warnings = append(seen.Warnings, why)
			case bid == "" && !lenient:
				return nil, nil, errNoBid
			case bid == "":
				seen.Warnings = append(seen.Warnings, "Cannot mark a child frame without a bid. Skipping frame.")
			default:
				level = append(level, job{f: j.f, bid: bid})
			}
		}
	}
	return marked, waits, nil
}

// held reads what DOM.describeNode says of the element that holds a frame: its bid, or why the frame is not marked.
func held(raw []byte, id string) (bid, why string) {
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
				why = "sandboxed"
			}
		}
	}
	if bid != "" && why == "" && !prefix(bid) {
		why = "Skipping frame: its element <" + d.Node.Name + "> is no iframe."
	}
	return bid, why
}

// prefix reports whether a bid can stand before those of a frame's elements: those of iframes are letters.
func prefix(bid string) bool {
	for i := range len(bid) {
		if c := bid[i]; (c < 'a' || c > 'z') && (i == 0 || c < 'A' || c > 'Z') {
			return false
		}
	}
	return bid != ""
}

// owners asks for the elements that hold frames, where they are not known yet: they stay the same as long as the frame is there.
func (p *Page) owners(ctx context.Context, frames []*frame) error {
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

func (p *Page) owner(ctx context.Context, f *frame) (int, error) {
	if err := p.owners(ctx, []*frame{f}); err != nil {
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
			for _, k := range f.kids {
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
		if err := p.prepare(ctx, []*frame{f}); err != nil {
			return "", err
		}
		var b batch
		if q = b.object(p, f, "focused", false); b.err != nil {
			return "", b.err
		}
	}
}

// unmark takes the marks' traces out of all frames, as far as that goes.
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
