package benchtest

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Suite says what is tested.
type Suite struct {
	Benchmark benchmarks.Benchmark
	Driver    sandbox.Driver // nil: no task needs a machine
	Options   benchmarks.Options
	Tasks     func(datasets.Task) bool // nil: all
	Want      int                      // number of tasks; 0: any but none
	Parallel  int                      // sessions at once; 0: 2
	// NopScores lists tasks whose nop may score more than 0 (never full), by ID.
	NopScores map[string]bool
}

// Run tests that the tasks can be read, twice the same; that Needs is a function of its arguments;
// that the known solution scores full and an agent that does nothing 0; that grading again, from
// stored evidence and without the session, says the same; that no machine is left open; that a
// machine is none that Needs did not name.
func Run(t *testing.T, s Suite) {
	if s.Parallel == 0 {
		s.Parallel = 2
	}
	tasks := s.read(t)
	t.Run("source", func(t *testing.T) { s.source(t, tasks) })
	t.Run("oracle", func(t *testing.T) { s.play(t, tasks, s.oracle) })
	t.Run("nop", func(t *testing.T) { s.play(t, tasks, s.nop) })
}

func (s Suite) read(t *testing.T) (tasks []datasets.Task) {
	t.Helper()
	n := 0
	for task, err := range s.Benchmark.Source().Tasks(t.Context()) {
		if err != nil {
			t.Fatalf("reading the tasks: %v", err)
		}
		n++
		if s.Tasks == nil || s.Tasks(task) {
			tasks = append(tasks, task)
		}
	}
	if n == 0 || s.Want != 0 && n != s.Want {
		t.Fatalf("the source has %d tasks, want %d", n, s.Want)
	}
	return tasks
}

func (s Suite) source(t *testing.T, tasks []datasets.Task) {
	seen := map[string]bool{}
	for _, task := range tasks {
		if task.ID == "" || task.Digest == "" || seen[task.ID] {
			t.Errorf("task %q: no ID, no digest %q, or an ID used twice", task.ID, task.Digest)
		}
		seen[task.ID] = true
		again, err := s.Benchmark.Source().Task(t.Context(), task.ID)
		if err != nil || again.Digest != task.Digest {
			t.Errorf("task %q read again: digest %q, was %q; %v", task.ID, again.Digest, task.Digest, err)
		}
		a, err := s.Benchmark.Needs(task, s.Options)
		b, err2 := s.Benchmark.Needs(task, s.Options)
		if err != nil || err2 != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("task %q: needs differ from one call to the next; %v, %v", task.ID, err, err2)
		}
	}
	if _, err := s.Benchmark.Source().Task(t.Context(), "no such task \x01"); !errors.Is(err, datasets.ErrNoTask) {
		t.Errorf("a task that is not there: %v, want ErrNoTask", err)
	}
}

// play calls f for every task, some at once.
func (s Suite) play(t *testing.T, tasks []datasets.Task, f func(*testing.T, datasets.Task)) {
	queue := make(chan datasets.Task)
	var wg sync.WaitGroup
	for range s.Parallel {
		wg.Go(func() {
			for task := range queue {
				f(t, task)
			}
		})
	}
	for _, task := range tasks {
		queue <- task
	}
	close(queue)
	wg.Wait()
}

func (s Suite) oracle(t *testing.T, task datasets.Task) {
	o, ok := s.Benchmark.(benchmarks.Oracle)
	if !ok {
		t.Errorf("the benchmark has no oracle")
		return
	}
	solver, err := o.Solve(task)
	if err != nil {
		t.Errorf("task %q: no solution: %v", task.ID, err)
		return
	}
	if got, results, ok := s.session(t, task, solver); ok && got != 1 {
		t.Errorf("task %q: the oracle scores %v: %s", task.ID, got, show(results))
	}
}

func (s Suite) nop(t *testing.T, task datasets.Task) {
	got, results, ok := s.session(t, task,
		agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) { return agent.Answer{}, nil }))
	if ok && (got >= 1 || got != 0 && !s.NopScores[task.ID]) {
		t.Errorf("task %q: an agent that does nothing scores %v: %s", task.ID, got, show(results))
	}
}

// session plays a task, grades it twice, and looks around.
func (s Suite) session(t *testing.T, task datasets.Task, a agent.Agent) (float64, []benchmarks.Result, bool) {
	x := Session{Benchmark: s.Benchmark, Driver: s.Driver, Task: task, Options: s.Options, Agent: a}
	p, err := Play(t.Context(), x)
	if p != nil {
		for _, stray := range p.Strays {
			t.Errorf("task %q: %s", task.ID, stray)
		}
	}
	if err != nil {
		t.Errorf("task %q: %v", task.ID, err)
		return 0, nil, false
	}
	if again, err := p.Grade(t.Context(), x); err != nil {
		if !errors.Is(err, benchmarks.ErrNeedsLive) {
			t.Errorf("task %q: grading again: %v", task.ID, err)
		}
	} else if show(again) != show(p.Results) {
		t.Errorf("task %q: grading again says %s, the first time it was %s", task.ID, show(again), show(p.Results))
	}
	for _, stray := range p.Strays {
		t.Errorf("task %q: %s", task.ID, stray)
	}
	got, err := p.Score(s.Benchmark)
	if err != nil {
		t.Errorf("task %q: %v", task.ID, err)
	}
	return got, p.Results, err == nil
}

func show(r []benchmarks.Result) string {
	b, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
