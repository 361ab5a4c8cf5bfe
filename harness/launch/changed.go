package launch

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

// A ChangedError says that tasks that still have to run have changed since the run was planned.
type ChangedError struct {
	Tasks   []string // changed tasks, as "benchmark/task"
	Missing []string // tasks that no longer exist
}

func (e *ChangedError) Error() string {
	var parts []string
	if n := len(e.Tasks); n > 0 {
		parts = append(parts, fmt.Sprintf("the content of %s has changed since the run was planned: %s",
			count(n, "task"), listed(e.Tasks)))
	}
	if n := len(e.Missing); n > 0 {
		verb := "are"
		if n == 1 {
			verb = "is"
		}
		parts = append(parts, fmt.Sprintf("%s %s no longer in the benchmark: %s", count(n, "task"), verb,
			listed(e.Missing)))
	}
	return strings.Join(parts, "; ")
}

// listed joins the names, at most ten of them.
func listed(names []string) string {
	const most = 10
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// changed compares the tasks of all unfinished trials with the plan, and of those that wait for a
// second opinion. It returns the digests and the names of the changed tasks to skip, or a
// *ChangedError. A rerun skips the changed tasks of which it picks no trial.
func (r *Ready) changed(ctx context.Context, was func(string) plan.Past, waiting map[string]*decision, c Control) (
	map[string]bool, []string, error) {
	picked := map[string]bool{}         // keyed by task digest
	want := map[int]map[string]string{} // digest by task, keyed by index in benches
	needed := func(j harness.Job) {
		if want[j.Benchmark] == nil {
			want[j.Benchmark] = map[string]string{}
		}
		want[j.Benchmark][j.Task.ID] = j.Task.Digest
	}
	for j := range r.variants(plan.Jobs(r.Plan, nil, nil)) {
		if d := waiting[j.Trial]; d != nil && d.grade.Confirmation.State == record.Pending {
			needed(j)
			picked[j.Task.Digest] = picked[j.Task.Digest] || c.Again == nil
		}
	}
	for j := range r.variants(plan.Jobs(r.Plan, was, c.Again)) {
		if j.Task.Bad != "" {
			continue // its trials are skipped with the reason
		}
		needed(j)
		past := was(j.Trial)
		past.Trial = j.Trial
		if c.Again == nil || c.Again(past) {
			picked[j.Task.Digest] = true
		}
	}
	left := map[string]bool{}
	var names, missing, alone []string
	for i, tasks := range want {
		b := r.benches[i]
		differs := func(id string, names *[]string) {
			if !left[tasks[id]] {
				left[tasks[id]] = true
				if !picked[tasks[id]] {
					names = &alone
				}
				*names = append(*names, b.Name()+"/"+id)
			}
			delete(tasks, id)
		}
		for t, err := range b.Source().Tasks(ctx) {
			id, digest := t.ID, t.Digest
			var bad *datasets.BadTask
			if errors.As(err, &bad) {
				id, digest = bad.ID, ""
			} else if err != nil {
				return nil, nil, fmt.Errorf("benchmark %s: %w", b.Name(), err)
			}
			if err == nil && digest == "" {
				if digest, err = record.TaskDigest(b.Name(), id, t.Data); err != nil {
					return nil, nil, err
				}
			}
			switch planned, ok := tasks[id]; {
			case !ok:
			case digest != planned:
				differs(id, &names)
			default:
				delete(tasks, id)
			}
			if len(tasks) == 0 {
				break
			}
		}
		for id := range tasks { // the remaining ones no longer exist
			differs(id, &missing)
		}
	}
	if len(names)+len(missing) == 0 || c.LeaveChanged {
		alone = slices.Concat(alone, names, missing)
		slices.Sort(alone)
		return left, alone, ctx.Err()
	}
	slices.Sort(names)
	slices.Sort(missing)
	return nil, nil, &ChangedError{names, missing}
}

// without filters out the trials of some tasks, given by digest.
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
