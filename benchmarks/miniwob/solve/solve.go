// Package solve plays tasks of MiniWoB++ with scripts. Like an agent, a script only uses the goal's
// text, what is visible on the page, and the actions available to agents. This tests that pages,
// browser and rewards work together. All knowledge about individual pages is kept in this package.
package solve

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/agent"
)

// A script solves a task.
type script func(p *player) error

// Knows reports whether there is a script for a task.
func Knows(task string) bool { return scripts[task] != nil }

// Agent returns an agent that solves a task, or an error if there is no script for it.
func Agent(task string) (agent.Agent, error) {
	s := scripts[task]
	if s == nil {
		return nil, fmt.Errorf("how %s is played is not scripted; --filter oracle=true leaves the %d tasks that are",
			task, len(scripts))
	}
	return agent.Func(func(ctx context.Context, session *agent.Session) (agent.Answer, error) {
		p := &player{ctx: ctx, s: session, goal: session.Goal.Text()}
		err := p.look()
		if err == nil {
			err = s(p)
		}
		if errors.Is(err, agent.ErrDone) {
			err = nil
		}
		return agent.Answer{}, err
	}), nil
}
