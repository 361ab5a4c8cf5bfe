package plan

import (
	"context"
	"fmt"

	"github.com/evalrun/evalrun/harness/record"
)

// List calls each for the tasks of the plan that [Build] makes of a spec, in the plan's order. It
// reads a benchmark only up to its selection's Limit. It holds only a sample and the tasks from the
// first one that depends on others; of each other task it keeps some 40 bytes to detect duplicate
// IDs. List may return an error after it has called each.
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
