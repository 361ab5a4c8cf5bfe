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

// A cause says why an agent's loop or an attempt ended. Either End is set, and the outcome is
// evidence about the agent, or Fault says who else is responsible.
type cause struct {
	End   record.End
	Limit string
	Text  string        // error text of an agent that broke
	Fault *record.Fault // if set, the attempt is not evidence about the agent
	// Again means that another attempt may succeed.
	Again bool
	// Open leaves the trial undecided, until a person has looked at it or the provider may be asked
	// again. A resume continues it.
	Open bool
	// Lasting means that attempts made soon would fail in the same way, which says nothing about
	// the arm.
	Lasting bool
	// Pause means that the arm's other trials would fail in the same way until somebody fixes the
	// cause, so none is started.
	Pause bool
	// Storage is a failure of the run's own storage. It ends the run.
	Storage error
	// Err is the error that Fault was made from, if any.
	Err error
}

// errTooSlow says that a phase outside the agent exceeded its timeout.
type errTooSlow struct{ phase, max string }

func (e *errTooSlow) Error() string { return fmt.Sprintf("%s took longer than %s", e.phase, e.max) }

// errSkip says that a trial cannot run here with any agent.
type errSkip struct{ class, why, kind string }

func (e *errSkip) Error() string { return e.why }

// errChanged says that a task has changed since it was planned.
type errChanged struct{}

func (*errChanged) Error() string {
	return "the task's content is not what it was when the run was planned; put it back and resume the run"
}

// errStorage marks failures of the journal or the blob store.
type errStorage struct{ err error }

func (e *errStorage) Error() string { return e.err.Error() }
func (e *errStorage) Unwrap() error { return e.err }

// agentEnd converts the return of an agent into a cause. sticky is the first failure that an
// environment or model reported during the loop, if any, so that an agent cannot hide an
// infrastructure failure by ignoring the error.
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
	// A trial that reached a limit ends as "limit" even if the agent returned an answer, because
	// the limit influenced that answer.
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

// ours reports whether err is of a known type that is not the agent's fault, and returns its cause.
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
		return cause{Fault: &record.Fault{Status: s, Phase: phase, Class: class, Kind: faultKind(err),
			Text: err.Error()},
			Again: again, Err: err}, true
	}
	switch {
	case errors.Is(err, record.ErrFenced): // another process holds the trial; the journal is fine
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
		return cause{}, false // a refusal or an exceeded context window is the arm's own result
	case errors.As(err, &task):
		return fault(record.Infra, "task", !lasting(err))
	case errors.As(err, &slow): // checked first because the timeout caused the other errors in the chain
		return fault(record.Infra, "timeout", true)
	case errors.As(err, &sb):
		// Failures caused by the agent are handled in leavings.
		if sb.BadRequest || sb.Inside && sb.Op != opKillAll {
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

// faultKind returns the kind of task fault that an error names, or "".
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

// phaseFault converts an error in a phase outside the agent into a cause. In the "grade" phase an
// infrastructure failure becomes the grader's.
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
