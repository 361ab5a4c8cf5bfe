package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/record"
)

// A listed is a benchmark of which only the source is used.
type listed struct {
	benchmarks.Benchmark
	name  string
	tasks []datasets.Task
	errs  map[int]error // yielded instead of a task
}

func (l listed) Name() string            { return l.name }
func (l listed) Source() datasets.Source { return l }

func (l listed) Task(context.Context, string) (datasets.Task, error) {
	return datasets.Task{}, datasets.ErrNoTask
}

func (l listed) Tasks(context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		for i, t := range l.tasks {
			if !yield(t, l.errs[i]) {
				return
			}
		}
	}
}

func numbered(name string, n int) listed {
	l := listed{name: name, errs: map[int]error{}}
	for i := range n {
		level := []string{"easy", "hard"}[i%2]
		l.tasks = append(l.tasks, datasets.Task{ID: fmt.Sprintf("%s/%d", name, i), Tags: []string{"all", level},
			Fields: map[string]string{"level": level}, Data: json.RawMessage(fmt.Sprint(i))})
	}
	return l
}

func spec(b benchmarks.Benchmark, sel Selection, arms ...string) Spec {
	s := Spec{Run: "r", Seed: 7, Repeats: 1, Benches: []Bench{{Benchmark: b, Spec: b.Name(), Select: sel}}}
	for _, a := range arms {
		s.Arms = append(s.Arms, record.Arm{ID: a, Name: a})
	}
	return s
}

func ids(p *record.Plan) (out []string) {
	for _, t := range p.Tasks {
		out = append(out, strings.TrimPrefix(t.ID, "b/"))
	}
	return out
}

func TestSelect(t *testing.T) {
	b := numbered("b", 12)
	for _, c := range []struct {
		sel  Selection
		want string
		err  string
	}{
		{Selection{}, "0 1 2 3 4 5 6 7 8 9 10 11", ""},
		{Selection{IDs: []string{"b/1*"}}, "1 10 11", ""},
		{Selection{IDs: []string{"*1"}}, "1 11", ""},
		{Selection{IDs: []string{"*1*", "!*0"}}, "1 11", ""},
		{Selection{IDs: []string{"!*"}}, "", "leaves none of its 12 tasks"},
		{Selection{Tags: []string{"hard"}, Limit: 2}, "1 3", ""},
		{Selection{IDs: []string{"b/1,b/2"}}, "", "a comma is part of a pattern"},
		{Selection{Filter: []string{"level=easy", "level!=hard"}}, "0 2 4 6 8 10", ""},
		{Selection{Filter: []string{"level=medium"}}, "", "their fields are level"},
		{Selection{Filter: []string{"level"}}, "", "not of the form"},
		{Selection{IDs: []string{"[a"}}, "", "not a glob"},
		{Selection{Limit: -1}, "", "negative"},
	} {
		p, err := Build(t.Context(), spec(b, c.sel, "a"))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: %v, want %q", c.sel, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c.sel, err)
			continue
		}
		if got := strings.Join(ids(p), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.sel, got, c.want)
		}
	}
}

func TestNoTasks(t *testing.T) {
	if _, err := Build(t.Context(), spec(numbered("b", 0), Selection{}, "a")); err == nil ||
		!strings.Contains(err.Error(), "its options leave none") {
		t.Error(err)
	}
}

func TestNearIDs(t *testing.T) {
	s := spec(numbered("b", 12), Selection{IDs: []string{"b/13", "z*"}}, "a")
	if _, err := Build(t.Context(), s); err == nil ||
		!strings.HasSuffix(err.Error(), `; did you mean "b/1" or "b/3" or "b/10"?`) {
		t.Error(err)
	}
}

func TestSampleAndShard(t *testing.T) {
	b := numbered("b", 100)
	one, err := Build(t.Context(), spec(b, Selection{Sample: 10}, "a"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Build(t.Context(), spec(b, Selection{Sample: 10}, "a"))
	if err != nil || !slices.Equal(ids(one), ids(again)) || len(one.Tasks) != 10 {
		t.Errorf("the same seed draws %v and %v", ids(one), ids(again))
	}
	other := spec(b, Selection{Sample: 10}, "a")
	other.Seed = 8
	if p, err := Build(t.Context(), other); err != nil || slices.Equal(ids(one), ids(p)) {
		t.Errorf("another seed draws the same: %v, %v", ids(p), err)
	}
	var all []string
	for i := 1; i <= 3; i++ {
		s := spec(b, Selection{}, "a")
		s.Shard = Shard{i, 3}
		p, err := Build(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ids(p)...)
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 100 || len(all) != 100 {
		t.Errorf("the shards hold %d tasks", len(all))
	}
	for _, bad := range []string{"0/3", "4/3", "1", "a/b", "1/0"} {
		if _, err := ParseShard(bad); err == nil {
			t.Errorf("shard %q was taken", bad)
		}
	}
}

func TestBadSources(t *testing.T) {
	b := numbered("b", 3)
	b.errs[1] = &datasets.BadTask{ID: "b/1", Place: "b.jsonl:2", Err: errors.New("unexpected end of JSON")}
	p, err := Build(t.Context(), spec(b, Selection{}, "a"))
	if err != nil || len(p.Tasks) != 3 || !strings.Contains(p.Tasks[1].Bad, "b.jsonl:2") {
		t.Errorf("a bad task: %+v, %v", p, err)
	}
	b.errs[1] = &datasets.Fatal{Place: "b.jsonl", Err: fs.ErrNotExist}
	if _, err := Build(t.Context(), spec(b, Selection{}, "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a source that is not there: %v", err)
	}
	twice := numbered("b", 2)
	twice.tasks[1].ID = twice.tasks[0].ID
	if _, err := Build(t.Context(), spec(twice, Selection{}, "a")); err == nil ||
		!strings.Contains(err.Error(), "two tasks") {
		t.Errorf("two tasks of one id: %v", err)
	}
	one, other := numbered("b", 2), numbered("c", 2)
	one.tasks[0].Digest, other.tasks[1] = "d", one.tasks[0]
	other.tasks[1].Digest = "d"
	shared := spec(one, Selection{}, "a")
	shared.Benches = append(shared.Benches, Bench{Benchmark: other, Spec: "c"})
	if _, err := Build(t.Context(), shared); err == nil || !strings.Contains(err.Error(), `both have the task "b/0"`) {
		t.Errorf("one task in two benchmarks: %v", err)
	}
	if _, err := Build(t.Context(), spec(numbered("b", 2), Selection{}, "a", "a")); err == nil ||
		!strings.Contains(err.Error(), "the same") {
		t.Errorf("two equal arms: %v", err)
	}
}

func TestJobs(t *testing.T) {
	s := spec(numbered("b", 5), Selection{}, "x", "y")
	s.Repeats = 2
	p, err := Build(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	jobs := slices.Collect(Jobs(p, nil, nil))
	if len(jobs) != Trials(p) || len(jobs) != 20 {
		t.Fatalf("%d jobs", len(jobs))
	}
	seen := map[string]bool{}
	for i, j := range jobs {
		if seen[j.Trial] {
			t.Errorf("trial %s twice", j.Trial)
		}
		seen[j.Trial] = true
		if j.Arm != i%2 || jobs[i-i%2].Task.ID != j.Task.ID || j.Repeat != 1+i/10 {
			t.Errorf("job %d: arm %d, task %s, repeat %d", i, j.Arm, j.Task.ID, j.Repeat)
		}
	}
	ev := []record.Evidence{{Stage: 0, Last: true}}
	past := map[string]Past{
		jobs[0].Trial: {Decided: true, Status: record.Scored, Attempts: 1, Fence: 1},
		jobs[1].Trial: {Decided: true, Status: record.Infra, Attempts: 3, Fence: 3},
		jobs[2].Trial: {Attempts: 2, Interrupted: 2, Prior: []int{1}, Fence: 5},
		jobs[3].Trial: {Attempts: 1, Interrupted: 1, Fence: 1, Evidence: ev},
		jobs[4].Trial: {Attempts: 1, Interrupted: 1, Fence: 1, Evidence: []record.Evidence{{}}},
	}
	left := slices.Collect(Jobs(p, func(id string) Past { return past[id] }, nil))
	if len(left) != 18 {
		t.Fatalf("%d left", len(left))
	}
	type brief struct {
		Attempt, Interrupted int
		Fence                int64
		Why                  string
		Evidence             int
	}
	get := func(j harness.Job) brief { return brief{j.Attempt, j.Interrupted, j.Fence, j.Why, len(j.Evidence)} }
	want := []brief{{3, 2, 6, "resume", 0}, {2, 1, 2, "resume", 1}, {2, 1, 2, "resume", 0}}
	if d := cmp.Diff(want, []brief{get(left[0]), get(left[1]), get(left[2])}); d != "" {
		t.Error(d)
	}
	again := slices.Collect(Jobs(p, func(id string) Past { return past[id] },
		func(p Past) bool { return p.Status == record.Infra }))
	if len(again) != 19 || get(again[0]) != (brief{4, 0, 4, "rerun", 0}) {
		t.Errorf("a rerun: %d, %+v", len(again), get(again[0]))
	}
}
