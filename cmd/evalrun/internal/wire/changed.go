package wire

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
)

// A ChangedError says that tasks which still have to be played are not what they were when the run was planned.
type ChangedError struct {
	Tasks []string // "benchmark/task"
}

func (e *ChangedError) Error() string {
	const most = 10
	names := e.Tasks
	more := ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	what := "the content of 1 task has"
	if len(e.Tasks) != 1 {
		what = fmt.Sprintf("the content of %d tasks has", len(e.Tasks))
	}
	return fmt.Sprintf("%s changed since the run was planned: %s%s", what, strings.Join(names, ", "), more)
}

// changed compares the tasks of all trials that are left with what was planned. It returns the digests of the tasks that are to be left
// alone, or a *ChangedError.
func (r *Ready) changed(ctx context.Context, was func(string) plan.Past, c Control) (map[string]bool, error) {
	want := map[int]map[string]string{} // by place in benches: digest by task
	for j := range r.variants(plan.Jobs(r.Plan, was, c.Again)) {
		if j.Task.Bad != "" {
			continue // its trials are skipped, with the reason
		}
		if want[j.Benchmark] == nil {
			want[j.Benchmark] = map[string]string{}
		}
		want[j.Benchmark][j.Task.ID] = j.Task.Digest
	}
	left := map[string]bool{}
	var names []string
	for i, tasks := range want {
		b := r.benches[i]
		differs := func(id string) {
			if !left[tasks[id]] {
				left[tasks[id]] = true
				names = append(names, b.Name()+"/"+id)
			}
			delete(tasks, id)
		}
		for t, err := range b.Source().Tasks(ctx) {
			id, digest := t.ID, t.Digest
			var bad *datasets.BadTask
			if errors.As(err, &bad) {
				id, digest = bad.ID, ""
			} else if err != nil {
				return nil, fmt.Errorf("benchmark %s: %w", b.Name(), err)
			}
			if err == nil && digest == "" {
				if digest, err = record.TaskDigest(b.Name(), id, t.Data); err != nil {
					return nil, err
				}
			}
			switch planned, ok := tasks[id]; {
			case !ok:
			case digest != planned:
				differs(id)
			default:
				delete(tasks, id)
			}
			if len(tasks) == 0 {
				break
			}
		}
		for id := range tasks { // is no longer there
			differs(id)
		}
	}
	if len(names) == 0 || c.LeaveChanged {
		return left, ctx.Err()
	}
	slices.Sort(names)
	return nil, &ChangedError{names}
}

// without leaves out the trials of some tasks, named by their digests.
func without(left map[string]bool, jobs iter.Seq[harness.Job]) iter.Seq[harness.Job] {
	if len(left) == 0 {
		return jobs
	}
	return func(yield func(harness.Job) bool) {
		for j := range jobs {
			if !left[j.Task.Digest] && !yield(j) {
				return
			}
		}
	}
}
