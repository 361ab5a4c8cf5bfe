// Package nop is the agent that does nothing and answers nothing. Its score shows what a benchmark
// gives away: a sound benchmark has a mean of 0 with this agent.
package nop

import (
	"context"

	"github.com/evalrun/evalrun/agent"
)

// Agent does nothing and answers nothing. It may be used for any number of sessions at once.
var Agent agent.Agent = agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
	return agent.Answer{}, context.Cause(ctx)
})
