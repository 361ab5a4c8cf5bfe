package harness

import (
	"context"
	"errors"
)

// A life records how far an attempt has come, which matters when the run ends. Once no more work is
// handed out, an attempt that would lose nothing ends at once and stays open for a resume. This
// applies to an attempt whose agent has not started, because it is waiting for capacity, images or
// a sandbox, and to one whose agent is waiting for its model provider and has no reply and no
// action yet. Any other attempt is finished, because after a cancellation a resume would pay for
// its calls in flight again and repeat its actions. A second stop cancels those too.
type life struct {
	end    context.CancelCauseFunc
	begun  bool // the agent has started, or the grading of an attempt without an agent
	played bool // a stage's evidence is durable
	calls  int  // model calls of the agent in flight
	waits  int  // number of these calls that are waiting for the provider
}

var errEnding = errors.New("the run hands out no more work, and this attempt had not begun")

// live returns the context of the attempt, and a function that releases it.
func (a *attempt) live(ctx context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	a.mu.Lock()
	a.life.end = end
	a.mu.Unlock()
	stop := context.AfterFunc(a.ending, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.endUnbegun()
	})
	return ctx, func() { stop(); end(nil) }
}

// endUnbegun cancels an attempt that loses nothing by it, if the run is ending. The caller holds
// the lock.
func (a *attempt) endUnbegun() {
	l := &a.life
	idle := !l.played && a.turns == 0 && a.steps == 0 && l.waits > 0 && l.waits == l.calls
	if a.ending.Err() != nil && (!l.begun || idle) {
		l.end(errEnding)
	}
}

// beginWork marks the attempt as one to be finished, unless the run is already ending.
func (a *attempt) beginWork() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endUnbegun()
	a.life.begun = true
}

func (a *attempt) stagePlayed() {
	a.mu.Lock()
	a.life.played = true
	a.mu.Unlock()
}

// calling counts a model call as in flight until done is called.
func (a *attempt) calling() (done func()) {
	a.mu.Lock()
	a.life.calls++
	a.mu.Unlock()
	return func() {
		a.mu.Lock()
		a.life.calls--
		a.mu.Unlock()
	}
}

// awaits returns a [model.Binding.Waiting] function. While the session waits, the clocks of the
// agent and the phase are paused and its worker is free for another session. other is set for
// models other than the arm's.
func (a *attempt) awaits(other bool) func() (done func()) {
	return func() func() {
		resume, back := a.forModel(), func() {}
		if a.queue != nil {
			back = a.queue.Waits(*a.job)
		}
		if other {
			return func() { back(); resume() }
		}
		a.mu.Lock()
		a.life.waits++
		a.endUnbegun()
		a.mu.Unlock()
		return func() {
			a.mu.Lock()
			a.life.waits--
			a.mu.Unlock()
			back()
			resume()
		}
	}
}
