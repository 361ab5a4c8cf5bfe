package harness

import (
	"cmp"
	"context"
	"errors"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// explain stores the details of a fault, such as the stacks of an executor that stopped responding.
// It also notes whether the agent's sandbox was lost, or was too slow, while the agent's processes
// were in it.
func (a *attempt) explain(ctx context.Context, c *cause) {
	var sb *sandbox.Error
	named := errors.As(c.Err, &sb)
	if named && c.Fault.Detail == "" && sb.Detail != "" {
		c.Fault.Detail = a.keep(ctx, cmp.Or(sb.Log, sb.Detail))
	}
	slow := errors.As(c.Err, new(*errTooSlow))
	a.mu.Lock()
	defer a.mu.Unlock()
	hung, grading := errors.Is(c.Err, sandbox.ErrHung), c.Fault.Phase == "grade"
	agents := false // the lost sandbox is the agent's
	switch {
	case named && hung && grading && sb.Op == "exec" && !a.isTheirs(sb.ID):
		a.lost = "the grader's machine was lost with what the agent left behind in it: "
		return
	case named && (slow || hung || sb.Inside && sb.Op == opKillAll):
		agents = a.isTheirs(sb.ID)
	case slow && !grading && len(a.theirs) > 0: // in grading, the slow sandbox may be the grader's
		agents = true
	default:
		return
	}
	a.lost = ""
	if agents && a.inside {
		a.lost = "the machine was lost with the agent's processes in it: "
	}
}

// entered records whether processes of the agent may be running.
func (a *attempt) entered(inside bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside = inside
}

// sharedBrowser reports whether the attempt lost a browser that other trials could also use.
func (a *attempt) sharedBrowser(v *record.Verdict) bool {
	return v.Status == record.Infra && v.Error.Class == record.ClassBrowser && !a.job.Alone
}

// lostBrowser gives an attempt score 0 if it lost its own, unshared browser while the agent was
// using it.
func (a *attempt) lostBrowser(v *record.Verdict) {
	if v.Status == record.Infra && v.Error.Class == record.ClassBrowser && a.job.Alone && a.inside {
		broke(v, "the browser, which nobody else used, was lost under the agent's hands: ")
	}
}

// lostMachine gives a trial score 0 if its last attempt lost a sandbox and the agent may have
// caused it: the agent's sandbox stopped responding, was too slow, or had processes that could not
// be killed, while the agent's processes were in it; or the grader's sandbox stopped responding in
// a command it ran. An agent must not be able to remove a trial from the score this way.
func (a *attempt) lostMachine(v *record.Verdict) {
	if a.lost == "" || v.Status != record.Infra && v.Status != record.Grader {
		return
	}
	broke(v, a.lost)
}

// broke turns a verdict with a fault into score 0.
func broke(v *record.Verdict, why string) {
	fault := *v.Error
	fault.Status = record.Scored
	grade := refusedResult(why + cut(fault.Text, 2<<10))
	v.Status, v.End, v.Error, v.Stages = record.Scored, record.Broke, &fault, 0
	v.Scores, v.Reward = grade.Scores, grade.Scores[0].Value
	v.Flags = append(v.Flags, grade.Flags...)
}
