package harness_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/queue"
)

// talker makes calls model calls, each followed by one action, as a CodeAct agent does.
func talker(calls int) agent.Agent {
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		m, err := s.Model("main")
		if err != nil {
			return agent.Answer{}, err
		}
		var msgs []model.Message
		for i := range calls {
			r, err := m.Generate(ctx, &model.Request{Messages: msgs})
			if err != nil {
				return agent.Answer{}, err
			}
			msgs = append(msgs, model.Message{Role: model.Assistant, Parts: r.Parts, Calls: r.Calls})
			if i == calls-1 {
				break
			}
			a := event.New(event.FromAgent, event.Run{Command: "grep -rn needle ."})
			a.Call = &event.Call{Reply: r.ID, ID: "c", Name: "execute_bash", Of: 1}
			obs, err := s.Step(ctx, a)
			if err != nil {
				return agent.Answer{}, err
			}
			msgs = append(msgs, model.Message{Role: model.ToolRole, CallID: "c",
				Parts: event.Text(obs.Body.(event.RunResult).Output)})
		}
		return agent.Answer{Parts: event.Text("right")}, nil
	})
}

// BenchmarkSession runs many concurrent sessions with a scripted model on a real journal on disk.
func BenchmarkSession(b *testing.B) {
	for _, calls := range []int{1, 20} {
		b.Run(fmt.Sprintf("calls=%d", calls), func(b *testing.B) { benchSessions(b, calls, 64, 0) })
	}
}

func benchSessions(b *testing.B, calls, workers int, reply time.Duration) {
	j, err := journal.Open(b.TempDir(), journal.Options{Ballast: -1, LowWater: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	bed := newBed(b, &toy{tasks: b.N}, talker(calls))
	bed.cfg.Workers = workers
	bed.cfg.Observe = nil
	bed.cfg.Arms[0].Model = replies(func(model.Binding, *model.Request) (*model.Response, error) {
		time.Sleep(reply)
		return &model.Response{Parts: event.Text("I will look for the needle."), Stop: "tool_calls",
			Calls: []event.ReplyCall{{ID: "c", Name: "execute_bash", Args: `{"command":"grep -rn needle ."}`}},
			Usage: event.Usage{In: 900, Out: 30}}, nil
	})
	q := queue.New(workers, queue.Stream{Jobs: plan.Jobs(bed.plan, nil, nil)})
	defer q.Close()
	b.ResetTimer()
	sum, err := harness.Run(context.Background(), bed.cfg, q, j)
	if err != nil || sum.Final != b.N {
		b.Fatal(sum, err)
	}
}

// BenchmarkAtOnce runs b.N concurrent sessions of 20 calls, each reply taking 50 ms. The ideal time
// is 1.05 s.
func BenchmarkAtOnce(b *testing.B) { benchSessions(b, 20, b.N, 50*time.Millisecond) }
