package plan

import (
	"context"
	"fmt"

	"github.com/evalrun/evalrun/harness/record"
)

// List gives the tasks of the plan that [Build] makes of a spec to each, in the plan's order. It
// reads no benchmark beyond its selection's Limit, and keeps no tasks but a sample and those behind
// the first one that comes after others; what remains of each other task that is read is some 40
// bytes, which serve to tell two of one ID. An error may come after tasks were given.
func List(ctx context.Context, s Spec, each func(record.Task) error) error {
	n, given := 0, 0
	give := func(t record.Task) (taken bool, err error) {
		if n++; s.Shard.has(n - 1) {
			given++
			return true, each(t)
		}
		return false, nil
	}
	for _, b := range s.Benches {
		r := &reading{words: s.words()}
		r.each = give
		tasks, err := r.selected(ctx, b, s.Seed)
		if err != nil {
			return fmt.Errorf("benchmark %s: %w", b.Spec, err)
		}
		rest := &record.Plan{}
		for i, t := range tasks {
			if s.Shard.has(n + i) {
				rest.Tasks = append(rest.Tasks, t)
			}
		}
		n += len(tasks)
		if err := r.follow(rest); err != nil {
			return fmt.Errorf("benchmark %s: %w", b.Spec, err)
		}
		for _, t := range rest.Tasks {
			given++
			if err := each(t); err != nil {
				return err
			}
		}
	}
	if given == 0 {
		return fmt.Errorf("plan: shard %s is empty: there are fewer tasks than shards", s.Shard)
	}
	return nil
}
