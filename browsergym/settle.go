package browsergym

import (
	"context"
	"time"

	_ "embed"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// Pace is how long the environment waits for a page after an action.
type Pace int

const (
	// Fast waits until the page has loaded and does not change any more, at most as long as the
	// reference waits.
	Fast      Pace = iota
	Reference      // as long as the reference waits, including its pauses between calls
)

const (
	delay     = 500 * time.Millisecond // of the reference, between an action and the observation
	domLimit  = 3 * time.Second        // for DOMContentLoaded, of each page and frame
	syncLimit = time.Second            // for pages to answer that they have reported everything
)

//go:embed timers.js
var timers string

// settle waits until the effects of an action have ended; with opened, those of the set-up.
func (e *Env) settle(ctx context.Context, opened bool) error {
	if e.o.Pace == Reference && !opened {
		if err := sleep(ctx, e.o.Delay); err != nil {
			return err
		}
		return e.loaded(ctx)
	}
	if err := e.loaded(ctx); err != nil {
		return err
	}
	page := e.context.Activity().Active
	if page == nil || page.Closed() {
		return nil
	}
	var marks *cdp.ObserveOptions
	if e.o.Pace == Fast && e.canMarkEarly(opened) {
		o := e.observeOptions(page)
		marks, e.marked = &o, page
	}
	// The reference does not wait for an opened page, but reads it some frames later. By then,
	// fields that focus themselves have done so.
	if err := page.WaitIdle(ctx, e.o.Delay+e.slow, opened, marks); err != nil {
		return err
	}
	return e.loaded(ctx) // the page may have navigated meanwhile
}

// pause waits, between two calls of one action, until the effects of the first have ended. Pages see
// the reference's pause there: one that completes what is typed has searched before the last
// character comes.
func (e *Env) pause(ctx context.Context, page *cdp.Page) error {
	if e.o.Pace == Reference || e.slow == 0 {
		return nil // the call has paused
	}
	return page.WaitIdle(ctx, e.slow, false, nil)
}

// canMarkEarly reports whether a page may be marked as soon as it is idle: only if nothing changes
// it before the observation.
func (e *Env) canMarkEarly(opened bool) bool {
	_, looks := e.task.(Looker)
	return !e.o.Raw && e.o.Ask == nil && (opened || looks)
}

// loaded waits until all events of the pages are handled and their documents are loaded.
func (e *Env) loaded(ctx context.Context) error {
	if err := e.context.Sync(ctx, syncLimit); err != nil {
		return err
	}
	return e.context.WaitDOM(ctx, domLimit)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
