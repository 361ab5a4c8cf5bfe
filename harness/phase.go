package harness

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// phase runs f under a timeout that does not count waiting for a model provider. If f does not
// return after its context ends, phase stops waiting for it after the grace period.
func (a *attempt) phase(ctx context.Context, name string, limit time.Duration, f func(context.Context) error) error {
	slow := &errTooSlow{name, limit.String()}
	pctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ck := newClock(limit, func() { cancel(slow) })
	defer ck.stop()
	a.setPhase(ck)
	defer a.setPhase(nil)
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			if p := recover(); p != nil {
				a.Slog.Error("panic in a benchmark", "trial", a.job.Trial, "phase", name, "panic", p, "stack",
					string(debug.Stack()))
				err = panicked(p)
			}
			done <- err
		}()
		err = f(pctx)
	}()
	select {
	case err := <-done:
		if err != nil && ctx.Err() == nil && pctx.Err() != nil {
			return fmt.Errorf("%w: %w", slow, err)
		}
		return err
	case <-pctx.Done():
	}
	var err error
	select {
	case err = <-done:
		if err == nil {
			return nil
		}
	case <-time.After(a.Phases.Grace):
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("%w: %w", slow, err)
	}
	return slow
}

// acquire acquires a lease for specs, whose sandboxes are used for role.
func (a *attempt) acquire(ctx context.Context, role string, specs []sandbox.Spec) error {
	if len(specs) == 0 {
		return nil
	}
	if a.Provider == nil {
		return &sandbox.Unsupported{Driver: "none at all", What: "a machine for this task"}
	}
	specs = slices.Clone(specs)
	for i := range specs {
		specs[i].Owner = a.owner("")
		specs[i].Reserve.Like = a.arm.ID + " " + a.bench.Name() + " " + role
	}
	defer a.since(func(t *record.Times) *time.Duration { return &t.Queue })()
	l, err := a.Provider.Acquire(ctx, specs)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.lease = l
	a.mu.Unlock()
	return nil
}

// browser waits for permission to hold a browser. To prevent deadlock, a session takes it before it
// asks for sandboxes and never afterwards. done gives it back and is called last, after everything
// else is closed.
func (a *attempt) browser(ctx context.Context) (done func(), err error) {
	if a.browsing != nil {
		stop := a.since(func(t *record.Times) *time.Duration { return &t.Queue })
		select {
		case a.browsing <- struct{}{}:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		stop()
		if err != nil {
			return nil, err
		}
	}
	r := a.runner
	r.mu.Lock()
	r.open++
	r.sum.Browsers = max(r.sum.Browsers, r.open)
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		r.open--
		r.mu.Unlock()
		if a.browsing != nil {
			<-a.browsing
		}
	}, nil
}

func (a *attempt) release() error {
	a.mu.Lock()
	l := a.lease
	a.lease = nil
	a.mu.Unlock()
	if l == nil {
		return nil
	}
	defer a.since(func(t *record.Times) *time.Duration { return &t.Close })()
	return l.Close()
}

func (a *attempt) closeEpisode(ctx context.Context, ep benchmarks.Episode) error {
	defer a.since(func(t *record.Times) *time.Duration { return &t.Close })()
	return a.phase(context.WithoutCancel(ctx), "close", a.Phases.Close,
		func(context.Context) error { return ep.Close() })
}

func (a *attempt) setPhase(ck *clock) {
	a.mu.Lock()
	a.inPhase = ck
	a.mu.Unlock()
}

// forModel pauses the clocks of the agent and of the current phase until the returned function is
// called, while waiting for a model provider.
func (a *attempt) forModel() func() {
	agent := a.waiting()
	a.mu.Lock()
	ck := a.inPhase
	a.mu.Unlock()
	if ck == nil {
		return agent
	}
	phase := ck.wait()
	return func() {
		phase()
		agent()
	}
}

// waiting pauses the agent's clock until the returned function is called.
func (a *attempt) waiting() func() {
	a.mu.Lock()
	c := a.clock
	a.mu.Unlock()
	if c == nil {
		return func() {}
	}
	return c.wait()
}

func (a *attempt) times(f func(*record.Times)) {
	a.mu.Lock()
	f(&a.t)
	a.mu.Unlock()
}

// since adds the time until the returned function is called to one of the attempt's times.
func (a *attempt) since(which func(*record.Times) *time.Duration) func() {
	began := time.Now()
	return func() { a.times(func(t *record.Times) { *which(t) += time.Since(began) }) }
}
