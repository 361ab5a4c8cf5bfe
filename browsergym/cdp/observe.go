package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/browsergym/obs"
)

// ObserveOptions say what is recorded of a page. The zero value records everything that the
// reference does.
type ObserveOptions struct {
	AllTags bool    // mark elements of any tag, not only those of standard HTML
	Scale   float64 // screenshot pixels per CSS pixel, for the coordinates of boxes; 0 means 1
	Picture bool    // take a screenshot
	NoAX    bool    // leave out the accessibility tree, the slowest part on a large page
}

// An Observation is the state of a marked page at one moment: the input of all texts.
type Observation struct {
	Snapshot   *obs.Snapshot   // of the DOM, without the data of marking
	AX         *obs.AXTree     // merged from all frames, as this browser returns it; nil if not requested
	Properties *obs.Properties // of all marked elements
	Picture    []byte          // the viewport as PNG; nil if not requested
	Focused    string          // bid of the focused element; may be ""
	Warnings   []string        // problems that did not prevent the observation
}

// observeTries and observeRetryPause are the reference's values: how often an observation of a
// changing page is tried, and the pause between tries.
const (
	observeTries      = 5
	observeRetryPause = 500 * time.Millisecond
	seenLimit         = time.Second // how long a frame's elements may take to be seen by its observer
)

// Observe marks all elements of the page and its frames, records the observation, and removes the
// marks except bids. It retries up to five times if the page navigates meanwhile.
func (p *Page) Observe(ctx context.Context, o ObserveOptions) (*Observation, error) {
	p.acts.Lock()
	defer p.acts.Unlock()
	defer p.forgetRequests()
	if o.Scale == 0 {
		o.Scale = 1
	}
	var warnings []string
	for left := observeTries - 1; ; left-- {
		seen, err := p.observe(ctx, o, left == 0)
		if err == nil && o.Picture && seen.Picture == nil {
			if seen.Picture, err = p.screenshot(ctx, o.Scale); err != nil {
				return nil, err
			}
		}
		if err == nil {
			seen.Warnings = append(warnings, seen.Warnings...)
			return seen, nil
		}
		if left == 0 || !transient(err) || ctx.Err() != nil {
			return nil, p.observeError(err)
		}
		warnings = append(warnings, fmt.Sprintf("An error occurred while extracting the dom and axtree. Retrying "+
			"(%d/%d tries left).\n%v", left, observeTries, err))
		p.unmark(ctx)
		if err := p.waitForRetry(ctx, observeTries-1-left); err != nil {
			return nil, err
		}
	}
}

// WaitIdle waits, at most limit, until the page is loaded and idle: no timer is due within the rest
// of limit, no finite animation runs, no request that began after the last observation is pending,
// and the document has not changed for a frame. With opened it waits only until the page is loaded.
//
// With o it also marks the page, so that a following [Page.Observe] with the same options need not.
// Until then the caller may only read the page; otherwise it must call [Page.Unmark]. WaitIdle
// returns nil for a page that does not answer.
func (p *Page) WaitIdle(ctx context.Context, limit time.Duration, opened bool, o *ObserveOptions) error {
	p.acts.Lock()
	defer p.acts.Unlock()
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := p.waitIdle(short, limit, opened, o)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, ErrClosed):
		return err
	}
	return nil
}

// settleFrames is the number of frames without changes to wait for after actions to which browsers
// react some frames later: scrolling, dragging, loaded images.
const settleFrames = 3

func (p *Page) waitIdle(ctx context.Context, limit time.Duration, opened bool, o *ObserveOptions) error {
	main := p.mainFrame()
	if main == nil {
		return errNoFrame
	}
	if err := p.installMarkScript(ctx, []*frame{main}); err != nil {
		return err
	}
	var marks any
	if o != nil {
		marks = o.AllTags
	}
	frames := 1
	if p.input.delayedEffects {
		p.input.delayedEffects, frames = false, settleFrames
	}
	end := time.Now().Add(limit)
	for {
		asked := 0
		if !opened {
			err := p.c.wait(ctx, func() (bool, error) {
				asked = p.requestCount
				return len(p.requests) == 0 || p.closed || p.crashed, nil
			})
			if err != nil {
				return err
			}
			// a response may have moved what is under the mouse; the browser notices in the next
			// frame
			if asked > 0 {
				frames = settleFrames
			}
		}
		var b batch
		q := b.object(p, main, "waitIdle", true, time.Until(end).Milliseconds(), opened, marks, frames)
		if b.err != nil {
			return b.err
		}
		if err := q.value(ctx, nil); err != nil || opened {
			return err
		}
		// Requests of the page meanwhile (an image of a style, a response to a click) were reported
		// before this answer. Their responses will change the page, or have changed it while it was
		// being marked.
		p.c.mu.Lock()
		same := p.requestCount == asked
		p.c.mu.Unlock()
		if same {
			return nil
		}
		if marks != nil {
			b.object(p, main, "unmark", false)
		}
	}
}

// forgetRequests stops waiting for pending requests: one that outlasts a step may never end.
func (p *Page) forgetRequests() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.requests, p.requestCount = nil, 0
}

// Unmark removes the marks from the page, as [Page.Observe] does at its end.
func (p *Page) Unmark(ctx context.Context) {
	p.acts.Lock()
	defer p.acts.Unlock()
	p.unmark(ctx)
}

// observeError returns the error of an observation, in the reference's words if the page caused it.
func (p *Page) observeError(err error) error {
	var f *Failure
	if errors.As(err, &f) {
		return err
	}
	if errors.Is(err, ErrLarge) {
		return &Failure{"Error", fmt.Sprintf("the page is too large to be observed: what it holds takes "+
			"more than %d MB", maxMessage>>20)}
	}
	return p.ended("Frame.evaluate", err)
}

// waitForRetry waits for the document that replaced the observed one.
func (p *Page) waitForRetry(ctx context.Context, try int) error {
	if p.c.opts.FixedPauses {
		return pause(ctx, observeRetryPause)
	}
	// give a page that keeps changing longer and longer pauses
	if err := pause(ctx, observeRetryPause>>(observeTries-try)); err != nil {
		return err
	}
	return p.waitFrame(ctx, p.mainFrame(), loaded, observeRetryPause)
}

func (p *Page) observe(ctx context.Context, o ObserveOptions, lenient bool) (*Observation, error) {
	seen := &Observation{}
	frames, waits, err := p.mark(ctx, o, lenient, seen)
	if err != nil {
		return nil, err
	}
	shot := &screenshot{p: p, o: o}
	defer shot.wait() // no screenshot is being taken after the return
	// Take it while the IntersectionObservers run: both wait for the page's next frame, and both
	// see the same layout.
	if o.Scale == 1 && p.resized {
		shot.start(ctx)
	}
	if err := p.waitSeen(ctx, waits, seen); err != nil {
		return nil, err
	}
	raw, err := p.capture(ctx, o, frames)
	if err != nil {
		return nil, err
	}
	shot.start(ctx) // everything that depends on the layout has been recorded
	if seen.Focused, err = p.focused(ctx, raw.focus); err != nil {
		return nil, err
	}
	if err := raw.decode(seen, o); err != nil {
		return nil, err
	}
	seen.Picture, err = shot.wait()
	return seen, err
}

// capture holds the raw responses of an observation.
type capture struct {
	snapshot []byte
	frames   []string // IDs of the frames of trees
	trees    [][]byte
	focus    *Pending
}

// capture sends all calls of an observation together and removes the marks from the page.
func (p *Page) capture(ctx context.Context, o ObserveOptions, frames []*frame) (t capture, err error) {
	var b batch
	snapshot := b.start(p, "DOMSnapshot.captureSnapshot", snapshotParams)
	var trees []*Pending
	var whole []*frame
	if !o.NoAX {
		for _, f := range p.allFrames() {
			whole = append(whole, f)
			trees = append(trees, b.start(p, "Accessibility.getFullAXTree", map[string]string{"frameId": f.id}))
		}
	}
	t.focus = b.object(p, frames[0], "focused", false)
	var clean []*Pending
	for _, f := range frames {
		clean = append(clean, b.object(p, f, "unmark", false))
	}
	if b.err != nil {
		return t, b.err
	}
	if t.snapshot, err = snapshot.Wait(ctx); err != nil {
		return t, err
	}
	for i, q := range trees {
		raw, err := q.Wait(ctx)
		if transient(err) && i > 0 && p.isDetached(whole[i]) {
			continue
		}
		if err != nil {
			return t, err
		}
		t.frames, t.trees = append(t.frames, whole[i].id), append(t.trees, raw)
	}
	for _, q := range clean {
		if err := q.value(ctx, nil); err != nil && !transient(err) {
			return t, err
		}
	}
	return t, nil
}

// snapshotParams are the reference's.
var snapshotParams = json.RawMessage(`{"computedStyles":[],"includeDOMRects":true,"includePaintOrder":true}`)

// decode decodes the captured data.
func (t *capture) decode(seen *Observation, o ObserveOptions) error {
	seen.Snapshot = new(obs.Snapshot)
	if err := json.Unmarshal(t.snapshot, seen.Snapshot); err != nil {
		return fmt.Errorf("the browser's snapshot: %w", err)
	}
	seen.Snapshot.Clean()
	seen.Properties, _ = obs.PropertiesOf(seen.Snapshot, o.Scale)
	if o.NoAX {
		return nil
	}
	content := contents(seen.Snapshot)
	all := make([]obs.AXTree, len(t.trees))
	for i, raw := range t.trees {
		if err := json.Unmarshal(raw, &all[i]); err != nil {
			return fmt.Errorf("the browser's accessibility tree: %w", err)
		}
		all[i].FrameID = t.frames[i]
	}
	seen.AX = obs.Merge(all, func(backend int) string { return content[backend] })
	return nil
}

// screenshot is a screenshot that is taken concurrently.
type screenshot struct {
	p    *Page
	o    ObserveOptions
	done chan struct{}
	png  []byte
	err  error
}

func (d *screenshot) start(ctx context.Context) {
	if d.done != nil || !d.o.Picture || d.p.c.opts.FixedPauses {
		return
	}
	d.done = make(chan struct{})
	go func() {
		defer close(d.done)
		d.png, d.err = d.p.screenshot(ctx, d.o.Scale)
	}()
}

// wait returns nil if the screenshot was not started.
func (d *screenshot) wait() ([]byte, error) {
	if d.done != nil {
		<-d.done
	}
	return d.png, d.err
}

// contents returns the IDs of the frames inside elements, by the elements' backend node IDs.
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

// object starts a call of a method of mark_elements.js in a frame.
func (b *batch) object(p *Page, f *frame, method string, await bool, args ...any) *Pending {
	p.c.mu.Lock()
	on := f.markObject
	p.c.mu.Unlock()
	if on == "" && b.err == nil {
		b.err = errNoFrame
	}
	return b.start(p, "Runtime.callFunctionOn",
		callFunction{Function: "function(...a){return this." + method + "(...a)}", Object: on,
			Arguments: arguments(args),
			ByValue:   true, Await: await})
}
