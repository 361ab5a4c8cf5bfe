package harness

import (
	"cmp"
	"context"
	"errors"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// explain keeps what is known of a fault beyond its text, such as the stacks of an executor that
// stopped answering, and notes whether the agent's machine was given up, or took too long, while
// the agent's processes were inside.
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
	agents := false // the agent's machine
	switch {
	case named && hung && grading && sb.Op == "exec" && !a.isTheirs(sb.ID):
		a.lost = "the grader's machine was lost with what the agent left behind in it: "
		return
	case named && (slow || hung || sb.Inside && sb.Op == opKillAll):
		agents = a.isTheirs(sb.ID)
	case slow && !grading && len(a.theirs) > 0: // the grade may need other machines
		agents = true
	default:
		return
	}
	a.lost = ""
	if agents && a.inside {
		a.lost = "the machine was lost with the agent's processes in it: "
	}
}

// entered notes that the agent acts, or that nothing of it runs any more.
func (a *attempt) entered(inside bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside = inside
}

// sharedBrowser reports whether the attempt lost a browser that other trials could use as well.
func (a *attempt) sharedBrowser(v *record.Verdict) bool {
	return v.Status == record.Infra && v.Error.Class == record.ClassBrowser && !a.job.Alone
}

// lostBrowser scores an attempt 0 if it lost a browser of its own while the agent acted in it.
func (a *attempt) lostBrowser(v *record.Verdict) {
	if v.Status == record.Infra && v.Error.Class == record.ClassBrowser && a.job.Alone && a.inside {
		broke(v, "the browser, which nobody else used, was lost under the agent's hands: ")
	}
}

// lostMachine makes 0 of a trial whose last attempt ended because the agent's machine stopped
// answering, took too long or did not let its processes be ended, while the agent's processes were
// in it, or because the grader's machine stopped answering in what it ran: what an agent does to
// its machine, or leaves for the grader to run, must not take the trial out of the score.
func (a *attempt) lostMachine(v *record.Verdict) {
	if a.lost == "" || v.Status != record.Infra && v.Status != record.Grader {
		return
	}
	broke(v, a.lost)
}

// broke makes 0 of a verdict that has a fault.
func broke(v *record.Verdict, why string) {
	fault := *v.Error
	fault.Status = record.Scored
	grade := refusedResult(why + cut(fault.Text, 2<<10))
	v.Status, v.End, v.Error, v.Stages = record.Scored, record.Broke, &fault, 0
	v.Scores, v.Reward = grade.Scores, grade.Scores[0].Value
	v.Flags = append(v.Flags, grade.Flags...)
}
