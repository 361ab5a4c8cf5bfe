package wire

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/config"
)

// noteUnmet tells of ids that were asked for and that no task has, where others are: a name that was mistyped would else be missed only by the number of
// tasks. Beside other selections, and with several benchmarks, it cannot be told who left a task out.
func (r *Ready) noteUnmet(ctx context.Context) {
	if len(r.Eff.Benchmarks) != 1 || r.Eff.Shard != nil {
		return
	}
	s := r.Eff.Benchmarks[0].Select
	if s == nil || len(s.Tags)+len(s.Filter)+s.Sample+s.Limit > 0 {
		return
	}
	var have, all []string
	for _, t := range r.Plan.Tasks {
		have = append(have, t.ID)
	}
	for _, id := range s.IDs {
		if strings.ContainsAny(id, "*?[!") || slices.Contains(have, id) {
			continue
		}
		if all == nil {
			for t, err := range r.benches[0].Benchmark.Source().Tasks(ctx) {
				if err == nil {
					all = append(all, t.ID)
				}
			}
		}
		if slices.Contains(all, id) { // left out by another pattern
			continue
		}
		note := fmt.Sprintf("there is no task %q", id)
		if near := config.Near(id, all); near != nil {
			note += fmt.Sprintf("; did you mean %q?", near[0])
		}
		r.Notes = append(r.Notes, note)
	}
}
