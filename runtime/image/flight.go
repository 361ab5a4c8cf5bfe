package image

import (
	"context"
	"errors"
	"sync"
)

// flights are preparations under way. Who asks for one that is on shares it.
type flights struct {
	mu sync.Mutex
	m  map[string]*flight
}

type flight struct {
	done    chan struct{}
	waiters int
	cancel  context.CancelCauseFunc
	info    Info
	err     error
}

var errNobodyWaits = errors.New("nobody waits for it any more")

// do runs work once for all who ask for key at the same time. Work's context outlives the one that
// began it; it ends when the last who waits has left.
func (fs *flights) do(ctx context.Context, key string, work func(context.Context) (Info, error)) (Info, error) {
	for {
		fs.mu.Lock()
		f := fs.m[key]
		if f == nil {
			f = &flight{done: make(chan struct{})}
			var wctx context.Context
			wctx, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
			if fs.m == nil {
				fs.m = map[string]*flight{}
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
			continue // it was ended just when this caller came
		}
		return f.info, f.err
	}
}
