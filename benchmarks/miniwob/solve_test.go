package miniwob_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks/miniwob/solve"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// Each scripted solution earns 1 on three seeds.
func TestSolutions(t *testing.T) {
	b := open(t, `{"seeds": [0, 1, 42]}`)
	for _, task := range solve.Names() {
		t.Run(task, func(t *testing.T) {
			t.Parallel()
			for repeat := 1; repeat <= 3; repeat++ {
				script, err := solve.Agent(task)
				if err != nil {
					t.Fatal(err)
				}
				a := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
					ans, err := script.Run(ctx, s)
					if err != nil {
						t.Error(err)
					}
					return ans, err
				})
				p := play(t, b, task, repeat, a)
				score, err := p.Score(b)
				if err != nil {
					t.Fatal(err)
				}
				if score != 1 {
					var end web.End
					json.Unmarshal(p.Evidence[0].Data, &end)
					t.Errorf("seed %d: %v after %d steps: %s", end.Seed, score, end.Steps, fmt.Sprint(p.Results[0], end.Task))
				}
			}
		})
	}
}
