package harness

import (
	"context"
	"errors"
)

// A life says how far an attempt has come, for the end of the run: when no more work is handed out,
// an attempt that would lose nothing ends at once, and stays open for a resume. Such are an attempt
// whose agent has not begun, which waits for room, for its images or for its machine; and one whose
// agent waits for its model's service and has neither a reply nor an action to its name. Any other
// is finished: to cut it off would be to pay for its replies and to play its actions again, as the
// second stop does.
type life struct {
	end    context.CancelCauseFunc
	begun  bool // the agent, or the grading of an attempt that has no agent
	played bool // a stage's evidence is kept
	calls  int  // model calls of the agent's that are under way
	waits  int  // of these: that wait for the service
}

var errEnding = errors.New("the run hands out no more work, and this attempt had not begun")

// live returns the context under which the attempt is played, and what to do at its end.
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

// endUnbegun ends an attempt that loses nothing by it, if the run is ending. The caller holds the
// lock.
func (a *attempt) endUnbegun() {
	l := &a.life
	idle := !l.played && a.turns == 0 && a.steps == 0 && l.waits > 0 && l.waits == l.calls
	if a.ending.Err() != nil && (!l.begun || idle) {
		l.end(errEnding)
	}
}

// beginWork says that what follows is to be finished, unless the run is ending.
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

// calling says that a model is called, until done is called.
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

// awaits is a [model.Binding]'s Waiting: the clocks of agent and phase stand still, and the
// session's worker is free for another. other is of a model beside the arm's.
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
