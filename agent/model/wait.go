package model

import (
	"context"
	"sync"
	"time"
)

type waitKey struct{}

// Waits is the total wait time of one try, reported by [Wait].
type Waits struct {
	mu    sync.Mutex
	open  int
	since time.Time
	total time.Duration
	ended time.Time
}

// WithWait returns a context that measures the waits of a try. The wrapper that times a try uses it
// to separate the time in a limiter's queue from the service's response time.
func WithWait(ctx context.Context) (context.Context, *Waits) {
	w := new(Waits)
	return context.WithValue(ctx, waitKey{}, w), w
}

// Total returns the time waited so far, including a wait that has not ended.
func (w *Waits) Total() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open > 0 {
		return w.total + time.Since(w.since)
	}
	return w.total
}

// Ended returns when the last wait ended, which is when the request was sent. It returns the zero
// time if there was no wait or one is in progress.
func (w *Waits) Ended() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open > 0 {
		return time.Time{}
	}
	return w.ended
}

// Wait reports that the call of ctx is waiting until done is called.
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

// WithPlace returns a context for all tries of one call, which are made one after the other. A
// limiter uses it to keep the call's place in its queue, so that a refused call does not queue
// behind calls that came later.
func WithPlace(ctx context.Context) context.Context {
	return context.WithValue(ctx, placeKey{}, new(uint64))
}

// Place returns where the limiter stores the place of the call of ctx; it is 0 at first. If it
// returns nil, each try counts as a call of its own.
func Place(ctx context.Context) *uint64 {
	p, _ := ctx.Value(placeKey{}).(*uint64)
	return p
}
