package plan

import (
	"context"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
)

// A counted is a benchmark that counts how many of its tasks are read.
type counted struct {
	listed
	yielded *int
}

func (c counted) Source() datasets.Source { return c }

func (c counted) Needs(datasets.Task, benchmarks.Options) (benchmarks.Needs, error) {
	return benchmarks.Needs{}, nil
}

func (c counted) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		for t, err := range c.listed.Tasks(ctx) {
			if *c.yielded++; !yield(t, err) {
				return
			}
		}
	}
}

// List yields what Build plans, for every selection, and reads no further than necessary.
func TestList(t *testing.T) {
	plain, linked := numbered("b", 30), numbered("b", 30)
	linked.tasks[10].After = []string{"b/3", "b/4"}
	linked.tasks[11].After = []string{"b/10"}
	linked.tasks[20].After = []string{"b/11", "b/25"}
	linked.tasks[25].After = []string{"b/1"}
	for name, l := range map[string]listed{"plain": plain, "linked": linked} {
		for _, c := range []struct {
			sel   Selection
			shard string
			reads int // of the plain ones
		}{
			{Selection{}, "", 30}, {Selection{Limit: 1}, "", 1}, {Selection{Limit: 12}, "", 12},
			{Selection{Tags: []string{"hard"}, Limit: 3}, "", 6},
			{Selection{Sample: 9}, "", 30}, {Selection{Sample: 9, Limit: 4}, "", 30}, {Selection{}, "2/3", 30},
			{Selection{IDs: []string{"!b/11", "!b/4"}}, "", 30},
			{Selection{Filter: []string{"level=easy"}}, "1/2", 30}, {Selection{Limit: 99}, "", 30},
			{Selection{Limit: 1}, "2/2", 1}, {Selection{Tags: []string{"no"}}, "", 30},
		} {
			n := 0
			s := spec(counted{l, &n}, c.sel, "a")
			var err error
			if c.shard != "" {
				if s.Shard, err = ParseShard(c.shard); err != nil {
					t.Fatal(err)
				}
			}
			p, want := Build(t.Context(), s)
			if p == nil {
				p = &record.Plan{}
			}
			n = 0
			var got []record.Task
			err = List(t.Context(), s, func(t record.Task) error { got = append(got, t); return nil })
			if (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
				t.Errorf("%s %+v: %v, want %v", name, c, err, want)
			}
			if d := cmp.Diff(p.Tasks, got); d != "" {
				t.Errorf("%s %+v: %s", name, c, d)
			}
			if name == "plain" && n != c.reads {
				t.Errorf("%+v: %d tasks were read, want %d", c, n, c.reads)
			}
		}
	}
}
