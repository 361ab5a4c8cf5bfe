// Package nop is the agent that does nothing and answers nothing. What it earns is what a benchmark
// gives away: the mean of a sound benchmark with this agent is 0.
package nop

import (
	"context"

	"github.com/evalrun/evalrun/agent"
)

// Agent does nothing and answers nothing. It may be used for any number of sessions at once.
var Agent agent.Agent = agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
	return agent.Answer{}, context.Cause(ctx)
})
