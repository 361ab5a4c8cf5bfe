package harness

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A cause is what ended an agent's loop or an attempt: either evidence (End) or whose fault it was
// (Fault).
type cause struct {
	End   record.End
	Limit string
	Text  string        // of an agent that broke
	Fault *record.Fault // set: the attempt is no evidence
	// Again: another attempt may do better.
	Again bool
	// Open: the trial is left undecided until a person has looked, or the service may be asked
	// again; a resume goes on with it.
	Open bool
	// Lasting: attempts that were begun soon would fail in the same way, and say nothing about the
	// arm.
	Lasting bool
	// Pause: the arm's other trials would fail in the same way until somebody acts, so none is
	// begun.
	Pause bool
	// Storage is a failure of the run's own records: the run ends.
	Storage error
	// Err is what the fault was made of, if it was an error.
	Err error
}

// errTooSlow says that a phase of ours passed its limit.
type errTooSlow struct{ phase, max string }

func (e *errTooSlow) Error() string { return fmt.Sprintf("%s took longer than %s", e.phase, e.max) }

// errSkip says that a trial cannot be played here, whoever the agent is.
type errSkip struct{ class, why, kind string }

func (e *errSkip) Error() string { return e.why }

// errChanged says that a task is no longer what was planned.
type errChanged struct{}

func (*errChanged) Error() string {
	return "the task's content is not what it was when the run was planned; put it back and resume the run"
}

// errStorage marks failures of the journal or the blobs.
type errStorage struct{ err error }

func (e *errStorage) Error() string { return e.err.Error() }
func (e *errStorage) Unwrap() error { return e.err }

// agentEnd says what an agent's return means. sticky is the first failure that an environment or
// model reported during the loop, if any: an agent cannot turn a failure of ours into an answer by
// swallowing it.
func (a *attempt) agentEnd(ctx context.Context, ans agent.Answer, err, sticky error) cause {
	if why := a.leavings(sticky); why != "" && ctx.Err() == nil {
		return cause{End: record.Broke, Text: why}
	}
	if c, ok := ours("agent", sticky); ok {
		return c
	}
	var limit *agent.LimitError
	if errors.As(context.Cause(ctx), &limit) {
		return cause{End: record.Limit, Limit: limit.Kind}
	}
	if ctx.Err() != nil {
		return canceled("agent", context.Cause(ctx))
	}
	// A limit ends a trial as "limit" also when the agent made an answer of it: the limit shaped
	// what it says.
	if errors.As(sticky, &limit) || errors.As(err, &limit) {
		return cause{End: record.Limit, Limit: limit.Kind}
	}
	if why := a.leavings(err); why != "" {
		return cause{End: record.Broke, Text: why}
	}
	switch {
	case err == nil || errors.Is(err, agent.ErrDone):
		if ans.GaveUp != "" {
			return cause{End: record.GaveUp}
		}
		return cause{End: record.Answered}
	}
	if c, ok := ours("agent", err); ok {
		return c
	}
	return cause{End: record.Broke, Text: err.Error()}
}

// ours recognises errors that say whose fault they are, and that it was not the agent's.
func ours(phase string, err error) (cause, bool) {
	if err == nil {
		return cause{}, false
	}
	var (
		storage *errStorage
		skipped *errSkip
		changed *errChanged
		slow    *errTooSlow
		env     *errEnv
		sb      *sandbox.Error
		uns     *sandbox.Unsupported
		mod     *model.Error
		task    *benchmarks.TaskError
		lent    *agent.Fault
		lost    *benchmarks.BrowserLost
	)
	fault := func(s record.Status, class string, again bool) (cause, bool) {
		return cause{Fault: &record.Fault{Status: s, Phase: phase, Class: class, Kind: faultKind(err), Text: err.Error()},
			Again: again, Err: err}, true
	}
	switch {
	case errors.Is(err, record.ErrFenced): // somebody else has the trial: nothing is wrong with the journal
		return fault(record.Canceled, "fenced", false)
	case errors.As(err, &storage):
		c, _ := fault(record.Infra, "storage", false)
		c.Storage = storage.err
		return c, true
	case errors.Is(err, ErrBudget), errors.Is(err, ErrUsage):
		return fault(record.Canceled, "canceled", false)
	case errors.As(err, &changed):
		c, _ := fault(record.Infra, "task", false)
		c.Open = true
		return c, true
	case errors.As(err, &skipped):
		return fault(record.Skipped, skipped.class, false)
	case errors.As(err, &uns):
		return fault(record.Skipped, "unsupported", false)
	case errors.Is(err, sandbox.ErrNeverFits):
		return fault(record.Skipped, "needs", false)
	case errors.As(err, &mod):
		switch {
		case mod.Provider():
			c, _ := fault(record.Provider, mod.Class, mod.Retry() && !mod.Open)
			c.Pause, c.Open = mod.Pause(), mod.Open
			return c, true
		case mod.Class == model.Invalid:
			return fault(record.Infra, mod.Class, false)
		}
		return cause{}, false // refused, context: the arm's
	case errors.As(err, &task):
		return fault(record.Infra, "task", !lasting(err))
	case errors.As(err, &slow): // whatever was cut off by it
		return fault(record.Infra, "timeout", true)
	case errors.As(err, &sb):
		if sb.BadRequest || sb.Inside && sb.Op != opKillAll { // what the agent has done is not here, see leavings
			return fault(record.Infra, "task", !sb.Permanent)
		}
		return fault(record.Infra, "sandbox", true)
	case errors.As(err, &lost):
		return fault(record.Infra, record.ClassBrowser, true)
	case errors.As(err, &env), errors.As(err, &lent):
		return fault(record.Infra, "internal", true)
	}
	return cause{}, false
}

// faultKind is the kind of fault of a task that an error names; "": none.
func faultKind(err error) string {
	var d *benchmarks.Defect
	var skipped *errSkip
	switch {
	case errors.As(err, &skipped):
		return skipped.kind
	case errors.As(err, &d):
		return d.Kind
	case errors.Is(err, sandbox.ErrBuild):
		return record.FaultBuild
	}
	return ""
}

// phaseFault says what an error in a phase of ours means. In grading it is the grader's, else
// infra.
func phaseFault(ctx context.Context, phase string, err error) cause {
	if ctx.Err() != nil {
		var slow *errTooSlow
		if !errors.As(context.Cause(ctx), &slow) {
			return canceled(phase, context.Cause(ctx))
		}
		err = slow
	}
	c, ok := ours(phase, err)
	if !ok {
		c = cause{Fault: &record.Fault{Status: record.Infra, Phase: phase, Class: "internal", Kind: faultKind(err),
			Text: err.Error()}, Again: true}
	}
	if phase == "grade" && c.Fault.Status == record.Infra && c.Storage == nil {
		c.Fault.Status = record.Grader
	}
	return c
}

func canceled(phase string, err error) cause {
	text := "stopped"
	if err != nil {
		text = err.Error()
	}
	return cause{Fault: &record.Fault{Status: record.Canceled, Phase: phase, Class: "canceled", Text: text}}
}
