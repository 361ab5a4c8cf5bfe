package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	var whole []*frame
	if !o.NoAX {
		for _, f := range p.allFrames() {
			whole = append(whole, f)
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
			if transient(err) && i > 0 && p.isGone(whole[i]) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if err := json.Unmarshal(raw, &all[i]); err != nil {
				return nil, fmt.Errorf("the browser's accessibility tree: %w", err)
			}
			all[i].FrameID = whole[i].id
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
