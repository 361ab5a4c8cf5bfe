package benchmarks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log"
	"strconv"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/sandboxed"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
)

// Doubles asks for twice a number. It needs no machine, so an episode is a goal and an answer.
type Doubles struct{}

func (Doubles) Name() string              { return "doubles" }
func (d Doubles) Source() datasets.Source { return d }

func (d Doubles) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		for n := 1; n <= 3; n++ {
			if t, err := d.Task(ctx, strconv.Itoa(n)); !yield(t, err) {
				return
			}
		}
	}
}

func (Doubles) Task(_ context.Context, id string) (datasets.Task, error) {
	n, err := strconv.Atoi(id)
	if err != nil || n < 1 || n > 3 {
		return datasets.Task{}, datasets.ErrNoTask
	}
	return datasets.Task{ID: id, Digest: id, Data: json.RawMessage(id)}, nil
}

func (Doubles) Needs(datasets.Task, benchmarks.Options) (benchmarks.Needs, error) {
	return benchmarks.Needs{}, nil
}

type doubling struct{ sandboxed.Base }

func (Doubles) Open(_ context.Context, h benchmarks.Host, t datasets.Task,
	_ benchmarks.Options) (benchmarks.Episode, error) {
	goal := sandboxed.TextGoal("What is twice " + string(t.Data) + "?")
	return &doubling{sandboxed.Base{Host: h, Stages: []benchmarks.Stage{{Goal: goal}}}}, nil
}

func (d *doubling) Collect(_ context.Context, ans agent.Answer) (benchmarks.Evidence, error) {
	return benchmarks.Evidence{Stage: d.Index(), Answer: ans}, nil
}

// Grade sees the evidence alone, so that it can be repeated years later.
func (Doubles) Grade(_ context.Context, _ benchmarks.Host, t datasets.Task, ev benchmarks.Evidence,
	_ benchmarks.Episode) (benchmarks.Result, error) {
	n, err := strconv.Atoi(string(t.Data))
	if err != nil {
		return benchmarks.Result{}, err
	}
	value := 0.0
	if ev.Answer.Text() == strconv.Itoa(2*n) {
		value = 1
	}
	return benchmarks.Result{Scores: []record.Score{{Name: "double", Primary: true, Value: &value}}}, nil
}

// A benchmark is played by an agent. benchtest.Play is the harness in small; benchtest.Run is the
// suite that a benchmark has to pass.
func ExampleBenchmark() {
	ctx := context.Background()
	four := sandboxed.Answers("4")
	for task, err := range (Doubles{}).Tasks(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		played, err := benchtest.Play(ctx, benchtest.Session{Benchmark: Doubles{}, Task: task, Agent: four})
		if err != nil {
			log.Fatal(err)
		}
		score, err := played.Score(Doubles{})
		fmt.Println(task.ID, score, err)
	}
	// Output:
	// 1 0 <nil>
	// 2 1 <nil>
	// 3 0 <nil>
}
