package launch

import (
	"context"
	"iter"
	"slices"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/config"
)

// accountOf names the service that a model's calls wait for; "": there is none, or its replies come
// from a tape.
func accountOf(m *config.Model) string {
	if m == nil || replays(m) {
		return ""
	}
	k := keyOfService(m)
	return k.model + " " + k.url + " " + k.key
}

// needsOf asks what a job's task needs; false: its trial will say why there is no telling.
func (r *Ready) needsOf(ctx context.Context, j harness.Job) (benchmarks.Needs, bool) {
	b := &r.benches[j.Benchmark]
	t, err := b.Source().Task(ctx, j.Task.ID)
	if err != nil {
		return benchmarks.Needs{}, false
	}
	needs, err := b.Needs(t, b.Options)
	return needs, err == nil && needs.Skip == ""
}

// named gives jobs the names of what they must have to themselves. Tasks are asked only where some
// that were looked at have such names, or not all were looked at.
func (r *Ready) named(jobs iter.Seq[harness.Job]) iter.Seq[harness.Job] {
	if !r.Needs.Exclusive && len(r.Plan.Tasks) <= surveyed {
		return jobs
	}
	return func(yield func(harness.Job) bool) {
		for j := range jobs {
			if len(j.Evidence) == 0 { // grading alone disturbs nobody
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
