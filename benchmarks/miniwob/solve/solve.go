// Package solve plays tasks of MiniWoB++ by script: as an agent would, by the goal's text and what
// there is to see of the page, and by the actions that agents have. It shows that page, browser and
// reward work together; what a script knows of a page is written here and nowhere else.
package solve

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/agent"
)

// A script solves a task.
type script func(p *player) error

// Knows reports whether a task has a script.
func Knows(task string) bool { return scripts[task] != nil }

// Agent solves a task, or says that nobody has written down how.
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
