package cli

import (
	"context"
	"os"
	"syscall"

	"github.com/evalrun/evalrun/harness"
)

// A stopper turns signals into the end of a run: the first lets what runs finish, the second stops it in order, the third
// ends the program at once. After each of them the run can be resumed.
type stopper struct {
	drain  chan struct{}
	ctx    context.Context
	cancel context.CancelCauseFunc
	over   chan struct{}
}

func (a *app) stopper(ctx context.Context) *stopper {
	s := &stopper{drain: make(chan struct{}), over: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	go func() {
		for n := 1; ; n++ {
			select {
			case sig := <-a.Signals:
				switch n {
				case 1:
					close(s.drain)
					a.say("\n%s: no new trials are begun; what runs is finished. Once more: stop it now. Either way the run can be resumed.", signalName(sig))
				case 2:
					s.cancel(harness.ErrStopped)
					a.say("\nstopping; once more ends the program at once")
				default:
					a.Exit(ExitStopped)
				}
			case <-s.over:
				return
			}
		}
	}()
	return s
}

// close ends the watch.
func (s *stopper) close() {
	close(s.over)
	s.cancel(nil)
}

func signalName(s os.Signal) string {
	switch s {
	case os.Interrupt:
		return "interrupted"
	case syscall.SIGTERM:
		return "terminated"
	}
	return s.String()
}
