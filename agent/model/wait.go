package model

import (
	"context"
	"sync/atomic"
	"time"
)

type waitKey struct{}

// WithWait returns a context whose waits, told by [AddWait], add up in the function's result. The wrapper that times a try uses it to
// keep the time in a limiter's queue apart from the service's own.
func WithWait(ctx context.Context) (context.Context, func() time.Duration) {
	n := new(atomic.Int64)
	return context.WithValue(ctx, waitKey{}, n), func() time.Duration { return time.Duration(n.Load()) }
}

// AddWait says that the call of ctx has waited for d before it went out.
func AddWait(ctx context.Context, d time.Duration) {
	if n, ok := ctx.Value(waitKey{}).(*atomic.Int64); ok {
		n.Add(int64(d))
	}
}
