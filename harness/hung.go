package harness

import (
	"cmp"
	"context"
	"errors"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// explain keeps what is known of a fault beyond its text, such as the stacks of an executor that
// stopped answering, and notes whether that happened while the agent's processes were inside.
func (a *attempt) explain(ctx context.Context, c *cause) {
	var sb *sandbox.Error
	if !errors.As(c.Err, &sb) {
		return
	}
	if c.Fault.Detail == "" && sb.Detail != "" {
		c.Fault.Detail = a.keep(ctx, cmp.Or(sb.Log, sb.Detail))
	}
	if errors.Is(c.Err, sandbox.ErrHung) || sb.Inside && sb.Op == opKillAll {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lost = a.inside && a.isTheirs(sb.ID)
	}
}

// entered notes that the agent acts, or that nothing of it runs any more.
func (a *attempt) entered(inside bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inside = inside
}

// lostWithAgent makes 0 of a trial whose last attempt ended because the agent's machine stopped
// answering, or did not let its processes be ended, while the agent's processes were in it: what an
// agent does to its machine must not take the trial out of the score.
func (a *attempt) lostWithAgent(v *record.Verdict) {
	if !a.lost || v.Status != record.Infra && v.Status != record.Grader {
		return
	}
	zero := 0.0
	fault := *v.Error
	fault.Status = record.Scored
	v.Status, v.End, v.Reward, v.Error, v.Stages = record.Scored, record.Broke, &zero, &fault, 0
	v.Scores = []record.Score{{Name: "reward", Primary: true, Value: &zero, Why: "the machine was lost with the agent's processes in it: " + cut(fault.Text, 2<<10)}}
	v.Flags = append(v.Flags, benchmarks.FlagNoReward)
}
