package image

import (
	"context"
	"errors"
	"sync"
)

// preparations are the preparations in progress. Concurrent callers share one per key.
type preparations struct {
	mu sync.Mutex
	m  map[string]*preparation
}

type preparation struct {
	done    chan struct{}
	waiters int
	cancel  context.CancelCauseFunc
	info    Info
	err     error
}

var errNobodyWaits = errors.New("nobody waits for it any more")

// do runs work once for all concurrent callers with the same key. The context of work ends when the
// last caller has left.
func (fs *preparations) do(ctx context.Context, key string, work func(context.Context) (Info, error)) (Info, error) {
	for {
		fs.mu.Lock()
		f := fs.m[key]
		if f == nil {
			f = &preparation{done: make(chan struct{})}
			var wctx context.Context
			wctx, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
			if fs.m == nil {
				fs.m = map[string]*preparation{}
			}
			fs.m[key] = f
			go func() {
				f.info, f.err = work(wctx)
				f.cancel(nil)
				fs.mu.Lock()
				delete(fs.m, key)
				fs.mu.Unlock()
				close(f.done)
			}()
		}
		f.waiters++
		fs.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			fs.mu.Lock()
			f.waiters--
			last := f.waiters == 0
			fs.mu.Unlock()
			if last {
				f.cancel(errNobodyWaits)
				<-f.done // so that nothing of it is left when the caller goes on
			}
			return Info{}, context.Cause(ctx)
		}
		if errors.Is(f.err, errNobodyWaits) && ctx.Err() == nil {
			continue // it was canceled just before this call
		}
		return f.info, f.err
	}
}
