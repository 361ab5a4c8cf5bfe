package miniwob_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/evalrun/evalrun/benchmarks/miniwob/solve"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// Each scripted solution earns 1 on three seeds.
func TestSolutions(t *testing.T) {
	b := open(t, `{"seeds": [0, 1, 42]}`)
	for _, task := range solve.Names() {
		t.Run(task, func(t *testing.T) {
			if only := os.Getenv("ONLY"); only == "" {
				t.Parallel()
			}
			for repeat := 1; repeat <= 3; repeat++ {
				a, err := solve.Agent(task)
				if err != nil {
					t.Fatal(err)
				}
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
