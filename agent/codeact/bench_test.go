package codeact_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/codeact"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/meter"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/price"
	"github.com/evalrun/evalrun/agent/model/retry"
)

// What a session costs beside its model, sandbox and journal: the agent, the conversation, and the
// wrappers.
func BenchmarkSession(b *testing.B) {
	for _, calls := range []int{1, 20, 200} {
		b.Run(fmt.Sprintf("calls=%d", calls), func(b *testing.B) {
			f := modeltest.Func(func(_ context.Context, _ model.Binding, n int,
				_ *model.Request) (*model.Response, error) {
				r := modeltest.Calls("execute_bash", fmt.Sprintf(`{"command":"step %d"}`, n))
				if n == calls-1 {
					r = modeltest.Calls("finish", `{"message":"done"}`)
				}
				return &r, nil
			})
			stack := meter.New(retry.New(limit.New(limit.Config{}).Wrap(f.Factory(0)), retry.Policy{}), price.Default())
			a := codeact.New(codeact.Config{})
			b.ReportAllocs()
			for b.Loop() {
				c, err := stack(model.Binding{Role: "main"})
				if err != nil {
					b.Fatal(err)
				}
				s := agenttest.NewSession(agenttest.Setup{
					Goal: "the task", Model: c,
					Run: func(context.Context, event.Run) (event.RunResult, error) {
						return event.RunResult{Output: "some output of a command\n"}, nil
					},
				})
				if _, err := a.Run(b.Context(), s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
