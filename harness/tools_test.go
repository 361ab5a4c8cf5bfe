package harness_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
)

// offering is an episode whose stage has a set of tools and tool servers.
type offering struct {
	benchmarks.Episode
	servers func() error
}

func (o offering) Next(ctx context.Context, prev *benchmarks.Result) (*benchmarks.Stage, error) {
	s, err := o.Episode.Next(ctx, prev)
	if err != nil {
		return nil, err
	}
	s.ToolSets = map[string][]agent.Tool{"box": {{Name: "boxed"}}}
	s.Servers = func(context.Context) ([]agent.Tool, []string, error) {
		return []agent.Tool{{Name: "served"}}, []string{"a note"}, o.servers()
	}
	return s, nil
}

// Tools of sets and of tool servers can be called, the latter once they were asked for. A failure of
// the sandbox in which servers start is none of the agent's.
func TestOfferedTools(t *testing.T) {
	var calls atomic.Int32
	fail := false
	b := newBed(t, &toy{tasks: 1,
		step: func(_ context.Context, a event.Event) (benchmarks.Turn, error) {
			calls.Add(1)
			return benchmarks.Turn{Obs: event.ToolResult{Name: a.Body.(event.ToolCall).Name}}, nil
		},
		wrap: func(ep benchmarks.Episode) benchmarks.Episode {
			return offering{ep, func() error {
				if fail {
					return errors.New("no sandbox")
				}
				return nil
			}}
		}}, agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		call := func(name string) string {
			obs, err := s.Step(ctx, event.New(event.FromAgent, event.ToolCall{Name: name, Args: json.RawMessage(`{}`)}))
			if err != nil {
				t.Error(err)
			}
			if e, ok := obs.Body.(event.Error); ok {
				return e.Code
			}
			return obs.Body.(event.ToolResult).Name
		}
		box, ok := agent.As[agent.ToolBox](s)
		if !ok || len(box.ToolSet("box")) != 1 || box.ToolSet("none") != nil {
			t.Error("there is no set of tools")
		}
		servers, ok := agent.As[agent.ToolServers](s)
		if !ok {
			t.Error("there are no tool servers")
		}
		if got := call("served"); got != "unknown_tool" {
			t.Errorf("before it is known: %s", got)
		}
		tools, notes, err := servers.ServerTools(ctx)
		if err != nil {
			return agent.Answer{}, err
		}
		if len(tools) != 1 || len(notes) != 1 {
			t.Errorf("%v %v", tools, notes)
		}
		for _, name := range []string{"served", "boxed"} {
			if got := call(name); got != name {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := call("other"); got != "unknown_tool" {
			t.Errorf("another: %s", got)
		}
		return agent.Answer{Parts: event.Text("right")}, nil
	}))
	if sum := b.run(t, t.Context()); sum.By[record.Scored] != 1 || calls.Load() != 2 {
		t.Fatalf("summary %+v, %d calls", sum, calls.Load())
	}
	for _, v := range b.verdicts(t) {
		if v.Reward == nil || *v.Reward != 1 {
			t.Errorf("%+v", v)
		}
	}
	fail = true
	c := newBed(t, b.toy, agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		servers, _ := agent.As[agent.ToolServers](s)
		_, _, err := servers.ServerTools(ctx)
		return agent.Answer{}, err
	}))
	c.cfg.Retry = harness.Retry{Attempts: 1}
	if sum := c.run(t, t.Context()); sum.By[record.Infra] != 1 {
		t.Fatalf("summary %+v", sum)
	}
}
