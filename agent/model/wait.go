package model

import (
	"context"
	"sync"
	"time"
)

type waitKey struct{}

// Waits adds up the waits of one try, begun by [Wait].
type Waits struct {
	mu    sync.Mutex
	open  int
	since time.Time
	total time.Duration
	ended time.Time
}

// WithWait returns a context that counts the waits of a try. The wrapper that times a try uses it
// to keep the time in a limiter's queue apart from the service's own.
func WithWait(ctx context.Context) (context.Context, *Waits) {
	w := new(Waits)
	return context.WithValue(ctx, waitKey{}, w), w
}

// Total is the time waited so far, one that goes on included.
func (w *Waits) Total() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open > 0 {
		return w.total + time.Since(w.since)
	}
	return w.total
}

// Ended is when the last wait ended: when the request went out. Zero: there was none, or one goes
// on.
func (w *Waits) Ended() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open > 0 {
		return time.Time{}
	}
	return w.ended
}

// Wait says that the call of ctx waits from now on, until done is called.
func Wait(ctx context.Context) (done func()) {
	w, ok := ctx.Value(waitKey{}).(*Waits)
	if !ok {
		return func() {}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == 0 {
		w.since = time.Now()
	}
	w.open++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open--; w.open == 0 {
			w.ended = time.Now()
			w.total += w.ended.Sub(w.since)
		}
	}
}

type placeKey struct{}

// WithPlace returns a context for all tries of one call, one after the other. A limiter keeps the
// call's place in its queue there, so that a call that was refused does not line up behind those
// that came later.
func WithPlace(ctx context.Context) context.Context {
	return context.WithValue(ctx, placeKey{}, new(uint64))
}

// Place is where the limiter keeps the place of the call of ctx, 0 at first. Nil: each try is a
// call of its own.
func Place(ctx context.Context) *uint64 {
	p, _ := ctx.Value(placeKey{}).(*uint64)
	return p
}
