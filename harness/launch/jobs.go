package launch

import (
	"context"
	"iter"
	"slices"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/config"
)

// accountOf returns the name of the provider that a model's calls wait for. It returns "" if there
// is no model or its replies come from a tape.
func accountOf(m *config.Model) string {
	if m == nil || replays(m) {
		return ""
	}
	k := keyOfService(m)
	return k.model + " " + k.url + " " + k.key
}

// needsOf returns what a job's task needs. ok is false if that is unknown; the trial will report
// why.
func (r *Ready) needsOf(ctx context.Context, j harness.Job) (benchmarks.Needs, bool) {
	b := &r.benches[j.Benchmark]
	t, err := b.Source().Task(ctx, j.Task.ID)
	if err != nil {
		return benchmarks.Needs{}, false
	}
	needs, err := b.Needs(t, b.Options)
	return needs, err == nil && needs.Skip == ""
}

// named sets the Exclusive names of jobs. It asks the tasks only if a surveyed task has such names,
// or if not all tasks were surveyed.
func (r *Ready) named(jobs iter.Seq[harness.Job]) iter.Seq[harness.Job] {
	if !r.Needs.Exclusive && len(r.Plan.Tasks) <= surveyed {
		return jobs
	}
	return func(yield func(harness.Job) bool) {
		for j := range jobs {
			if len(j.Evidence) == 0 { // grading alone needs no exclusive resource
				if needs, ok := r.needsOf(context.Background(), j); ok {
					j.Exclusive = slices.Compact(slices.Sorted(slices.Values(needs.Exclusive)))
				}
			}
			if !yield(j) {
				return
			}
		}
	}
}
