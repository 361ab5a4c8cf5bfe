package agenttest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
)

func TestSuite(t *testing.T) {
	agenttest.Run(t, agenttest.Suite{
		New: func(*testing.T) agent.Agent {
			return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				for range 3 {
					obs, err := s.Step(ctx, event.New(event.FromAgent, event.Run{Command: "echo hello"}))
					if errors.Is(err, agent.ErrDone) {
						break
					}
					if err != nil {
						return agent.Answer{}, err
					}
					_ = obs
				}
				return agent.Answer{Parts: event.Text("done")}, nil
			})
		},
		Setup: func(*testing.T) agenttest.Setup {
			return agenttest.Setup{Goal: "say hello", Outputs: map[string]string{"echo hello": "hello\n"}}
		},
	})
}

func TestLog(t *testing.T) {
	var l agenttest.Log
	a, err := l.Append(t.Context(), event.New(event.FromAgent, event.Run{Command: "x"}))
	if err != nil || a.ID != 0 {
		t.Fatalf("Append = %v, %v", a.ID, err)
	}
	obs := event.New(event.FromEnvironment, event.RunResult{})
	if _, err := l.Append(t.Context(), obs); !errors.Is(err, event.ErrNoAction) {
		t.Errorf("an observation without a cause: %v", err)
	}
	obs.Cause = a.ID
	if _, err := l.Append(t.Context(), obs); err != nil {
		t.Errorf("the first observation: %v", err)
	}
	if _, err := l.Append(t.Context(), obs); !errors.Is(err, event.ErrAnswered) {
		t.Errorf("the second observation: %v", err)
	}
	l.Close()
	if _, err := l.Append(t.Context(), obs); !errors.Is(err, event.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	n := 0
	for range l.Watch(t.Context(), 1, 1) {
		n++
	}
	if n != 1 {
		t.Errorf("Watch gave %d events from 1 on, want 1", n)
	}
}
