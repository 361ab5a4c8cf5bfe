package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
)

// A chained is a benchmark whose tasks share a world: task i comes after the tasks that after
// returns.
type chained struct {
	listed
	exclusive []string
}

func (c chained) Needs(datasets.Task, benchmarks.Options) (benchmarks.Needs, error) {
	return benchmarks.Needs{Exclusive: c.exclusive}, nil
}

func chain(after map[int][]int, n int) chained {
	c := chained{listed: numbered("web", n)}
	for i, list := range after {
		for _, j := range list {
			c.tasks[i].After = append(c.tasks[i].After, c.tasks[j].ID)
		}
	}
	return c
}

func TestAfter(t *testing.T) {
	c := chain(map[int][]int{1: {0}, 2: {1}, 3: {2, 1}, 4: {3}, 5: {9}}, 6+4)
	c.tasks[5].After = append(c.tasks[5].After, "web/none such")
	p, err := Build(t.Context(), spec(c, Selection{IDs: []string{"!web/2", "!web/9", "!web/0"}}, "x"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, task := range p.Tasks {
		if task.After != nil {
			got[task.ID] = task.After
		}
	}
	if d := cmp.Diff(map[string][]string{"web/3": {"web/1"}, "web/4": {"web/3"}}, got); d != "" {
		t.Error(d)
	}
	if p.Benchmarks[0].Rounds != record.RoundsOfRepeats {
		t.Errorf("rounds %q", p.Benchmarks[0].Rounds)
	}
	c.exclusive = []string{"site"}
	if p, err = Build(t.Context(), spec(c, Selection{}, "x")); err != nil ||
		p.Benchmarks[0].Rounds != record.RoundsOfArms {
		t.Errorf("rounds %q, %v", p.Benchmarks[0].Rounds, err)
	}
	if p, err = Build(t.Context(), spec(numbered("web", 3), Selection{}, "x")); err != nil ||
		p.Benchmarks[0].Rounds != "" {
		t.Errorf("of independent tasks: rounds %q, %v", p.Benchmarks[0].Rounds, err)
	}
	// A shard knows only its own tasks.
	s := spec(c, Selection{}, "x")
	s.Shard = Shard{1, 2}
	if p, err = Build(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(p.Tasks, func(t record.Task) bool { return t.ID == "web/4" }); !slices.Equal(
		p.Tasks[i].After, []string{"web/2", "web/0"}) && !slices.Equal(p.Tasks[i].After, []string{"web/2"}) {
		t.Errorf("in a shard: %v", p.Tasks[i].After)
	}
}

func TestCircle(t *testing.T) {
	c := chain(map[int][]int{1: {0}, 2: {1}, 3: {2}, 1 + 3: {3}}, 6)
	c.tasks[1].After = append(c.tasks[1].After, "web/3")
	_, err := Build(t.Context(), spec(c, Selection{}, "x"))
	if err == nil || !strings.Contains(err.Error(), `"web/1" after "web/3" after "web/2" after "web/1"`) {
		t.Error(err)
	}
	self := chain(map[int][]int{2: {2}}, 3)
	if _, err := Build(t.Context(), spec(self, Selection{}, "x")); err == nil ||
		!strings.Contains(err.Error(), `"web/2" after "web/2"`) {
		t.Error(err)
	}
}

// Every trial is listed behind those that it waits for, in rounds, also after a resume.
func TestOrderOfJobs(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 40 {
		after := map[int][]int{}
		for i := 1; i < 30; i++ {
			for range rng.IntN(3) {
				after[i] = append(after[i], rng.IntN(i))
			}
		}
		c := chain(after, 30)
		if n%2 == 1 {
			c.exclusive = []string{"site"}
		}
		s := spec(c, Selection{Sample: 20}, "x", "y")
		s.Repeats, s.Seed = 3, uint64(n)
		s.Benches = append(s.Benches, Bench{Benchmark: numbered("free", 5), Spec: "free"})
		p, err := Build(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		decided := map[string]bool{}
		if n%3 == 0 {
			for j := range Jobs(p, nil, nil) {
				if rng.IntN(3) == 0 {
					decided[j.Trial] = true
				}
			}
		}
		seen := map[string]bool{}
		round := map[string]int{}
		count := 0
		for j := range Jobs(p, func(trial string) Past { return Past{Decided: decided[trial]} }, nil) {
			if seen[j.Trial] || decided[j.Trial] {
				t.Fatalf("%s twice", j.Trial)
			}
			seen[j.Trial] = true
			count++
			if (j.World == "") != (j.Task.Benchmark == "free") {
				t.Fatalf("world %q of %s", j.World, j.Task.ID)
			}
			if j.Round < round[j.World] {
				t.Fatalf("round %d after %d", j.Round, round[j.World])
			}
			round[j.World] = j.Round
			for _, a := range j.After {
				if !seen[a] && !decided[a] {
					t.Fatalf("%s comes before %s", j.Trial, a)
				}
			}
		}
		if want := Trials(p) - len(decided); count != want {
			t.Fatalf("%d jobs, want %d", count, want)
		}
		worlds := fmt.Sprint(len(round))
		if want := map[bool]string{true: "2", false: "3"}[n%2 == 1]; worlds != want {
			t.Fatalf("%s worlds, want %s", worlds, want)
		}
	}
}

// Streams contain what Jobs yields, each trial once, and each stream is in the plan's order.
func TestStreams(t *testing.T) {
	for n := range 12 {
		c := chain(map[int][]int{1: {0}, 4: {1, 2}}, 6)
		if n%2 == 1 {
			c.exclusive = []string{"site"}
		}
		s := spec(c, Selection{}, "x", "y", "z")
		s.Repeats, s.Seed = 2, uint64(n)
		s.Benches = append(s.Benches, Bench{Benchmark: numbered("free", 5), Spec: "free"})
		p, err := Build(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		past := func(trial string) Past { return Past{Decided: trial[0]%3 == 0 && n > 5} }
		place := map[string]int{}
		for j := range Jobs(p, past, nil) {
			place[j.Trial] = len(place)
		}
		count := 0
		for _, s := range Streams(p, past, nil) {
			last := -1
			for j := range s.Jobs {
				at, ok := place[j.Trial]
				if !ok || at <= last {
					t.Fatalf("%s is out of order", j.Trial)
				}
				if s.Arm != j.Arm && (s.Arm >= 0 || j.World != s.World) {
					t.Errorf("stream of arm %d, world %q: a trial of arm %d, world %q", s.Arm, s.World, j.Arm, j.World)
				}
				last = at
				count++
			}
		}
		if count != len(place) {
			t.Errorf("%d trials in streams, %d in the plan", count, len(place))
		}
	}
}
