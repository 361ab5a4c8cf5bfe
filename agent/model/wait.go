package model

import (
	"context"
	"sync"
	"time"
)

type waitKey struct{}

// waits adds up the waits of one call.
type waits struct {
	mu    sync.Mutex
	open  int
	since time.Time
	total time.Duration
}

// WithWait returns a context whose waits, begun by [Wait], add up in the function's result, one that goes on included. The wrapper that times
// a try uses it to keep the time in a limiter's queue apart from the service's own.
func WithWait(ctx context.Context) (context.Context, func() time.Duration) {
	w := new(waits)
	return context.WithValue(ctx, waitKey{}, w), func() time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open > 0 {
			return w.total + time.Since(w.since)
		}
		return w.total
	}
}

// Wait says that the call of ctx waits from now on, until done is called.
func Wait(ctx context.Context) (done func()) {
	w, ok := ctx.Value(waitKey{}).(*waits)
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
			w.total += time.Since(w.since)
		}
	}
}
