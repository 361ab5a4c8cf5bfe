package cli

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/evalrun/evalrun/harness"
)

// watch reads signals until over is closed. A run turns them into its end, in order; outside of a
// run there is nothing to end in order, and what is done then (a file that is opened, say) may
// never return by itself, so the first one ends the program.
func (a *app) watch(over <-chan struct{}) {
	for {
		select {
		case sig := <-a.Signals:
			s := a.stop.Load()
			switch {
			case s == nil:
				a.say("%s", signalName(sig))
				a.Exit(ExitStopped)
			case s.n == cap(s.todo): // whatever the others wait for
				a.Exit(ExitStopped)
			default:
				s.n++
				s.todo <- sig
			}
		case <-over:
			return
		}
	}
}

// A stopper turns signals into the end of a run: the first lets what runs finish, the second stops
// it in order, the third ends the program at once. After each of them the run can be resumed.
type stopper struct {
	a      *app
	p      *late
	drain  chan struct{}
	ctx    context.Context
	cancel context.CancelCauseFunc
	todo   chan os.Signal // the first two
	over   chan struct{}
	n      int // signals so far
}

// stopper makes signals the run's, until its close.
func (a *app) stopper(ctx context.Context, p *late) *stopper {
	s := &stopper{a: a, p: p, drain: make(chan struct{}), todo: make(chan os.Signal, 2), over: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	a.stop.Store(s)
	go s.work()
	return s
}

// work does what the first two signals mean, apart from the goroutine that waits for the third.
func (s *stopper) work() {
	for n := 1; n <= cap(s.todo); n++ {
		select {
		case sig := <-s.todo:
			s.signal(n, sig)
		case <-s.over:
			return
		}
	}
}

func (s *stopper) signal(n int, sig os.Signal) {
	again := "press Ctrl-C again"
	if sig != os.Interrupt {
		again = "signal again"
	}
	switch n {
	case 1:
		close(s.drain)
		what, cut := "no more trials are begun", "to stop now"
		switch n := s.p.drain(); n {
		case 0:
		case 1:
			what, cut = "1 trial is being finished", "to cut it off now"
		default:
			what, cut = fmt.Sprintf("%d trials are being finished", n), "to cut them off now"
		}
		if f := s.p.finishing; f != nil {
			if why := f(); why != "" {
				what += " (" + why + ")"
			}
		}
		s.a.between(s.p, fmt.Sprintf("stopping: %s; %s %s", what, again, cut))
	case 2:
		s.cancel(harness.ErrStopped)
		s.a.between(s.p, "stopping now; "+again+" to end the program at once")
	}
}

// close gives the signals back.
func (s *stopper) close() {
	s.a.stop.Store(nil)
	close(s.over)
	s.cancel(nil)
}

// between says something while progress is shown.
func (a *app) between(p *late, text string) {
	if !p.say(text) {
		a.say("%s", text)
	}
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
