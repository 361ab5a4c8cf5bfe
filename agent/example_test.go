package agent_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
)

// An agent that looks around once and answers with what it saw. The session here is the one of
// tests, with a command that prints what it is told to.
func ExampleFunc() {
	look := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		seen, err := s.Step(ctx, event.New(event.FromAgent, event.Run{Command: "ls"}))
		if err != nil {
			return agent.Answer{}, err
		}
		files := strings.Fields(seen.Body.(event.RunResult).Output)
		return agent.Answer{Parts: event.Text(fmt.Sprintf("%d files, the first is %s", len(files), files[0]))}, nil
	})

	s := agenttest.NewSession(agenttest.Setup{
		Goal:    "What is in this folder?",
		Outputs: map[string]string{"ls": "README.md\nmain.go\n"},
	})
	answer, err := look.Run(context.Background(), s)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Goal.Text())
	fmt.Println(answer.Text())
	// Output:
	// What is in this folder?
	// 2 files, the first is README.md
}
