package cli

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/evalrun/evalrun/harness"
)

// watch handles signals until over is closed. During a run, signals shut it down in order. Outside
// of a run there is nothing to shut down, and the current operation (such as opening a file) may
// block forever, so the first signal exits the program.
func (a *app) watch(over <-chan struct{}) {
	for {
		select {
		case sig := <-a.Signals:
			s := a.stop.Load()
			switch {
			case s == nil:
				a.say("%s", signalName(sig))
				a.Exit(ExitStopped)
			case s.n == cap(s.todo): // exit even if the earlier signals are still being handled
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

// A stopper shuts down a run on signals: the first lets running trials finish, the second stops
// them in order, the third exits the program at once. The run can be resumed after each of them.
type stopper struct {
	a      *app
	p      *late
	drain  chan struct{}
	ctx    context.Context
	cancel context.CancelCauseFunc
	todo   chan os.Signal // carries the first two signals
	over   chan struct{}
	n      int // number of signals so far
}

// stopper directs signals to the run until close is called.
func (a *app) stopper(ctx context.Context, p *late) *stopper {
	s := &stopper{a: a, p: p, drain: make(chan struct{}), todo: make(chan os.Signal, 2), over: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	a.stop.Store(s)
	go s.work()
	return s
}

// work handles the first two signals in its own goroutine, so that the third one is received
// without delay.
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

// close stops handling signals.
func (s *stopper) close() {
	s.a.stop.Store(nil)
	close(s.over)
	s.cancel(nil)
}

// between prints text without disturbing the progress display.
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
