// Package web is what benchmarks in a browser share: the seeds and the order that published results
// were made with, and sources of tasks that are a table.
package web

import (
	"context"
	"iter"

	"github.com/evalrun/evalrun/browsergym/rng"
	"github.com/evalrun/evalrun/datasets"
)

// Tag is on every task that is played in a browser, so that --tag browser (or --tag '!browser')
// selects the same in all benchmarks.
const Tag = "browser"

// Seeds are BrowserGym's default seeds: for each task of a benchmark, in the order of its list, one
// for each repeat. They depend on how many tasks and repeats there are in the whole benchmark, not
// on how many of them are played. They are of 0 to 33, as a power was written there as an exclusive
// or, and stay so for ever.
func Seeds(tasks, repeats int) [][]int {
	r := rng.NewRandomState(42)
	out := make([][]int, tasks)
	for i := range out {
		out[i] = r.Randints(0, 2^32, repeats) // 34: Go's ^ is that exclusive or
	}
	return out
}

// Chain says which tasks come after which, by the rule of shared sites: each after the one before
// it on each of its sites, as that may have changed them. sites are those of each task; the result
// holds indices, in the order of a task's sites, each once.
func Chain(sites [][]string) [][]int {
	last := map[string]int{}
	out := make([][]int, len(sites))
	for i, list := range sites {
		for _, s := range list {
			if j, ok := last[s]; ok {
				out[i] = add(out[i], j)
			}
		}
		for _, s := range list {
			last[s] = i
		}
	}
	return out
}

func add(list []int, v int) []int {
	for _, x := range list {
		if x == v {
			return list
		}
	}
	return append(list, v)
}

// Table is a source of tasks that are in memory.
func Table(tasks []datasets.Task) datasets.Source {
	t := &table{tasks: tasks, byID: map[string]int{}}
	for i, x := range tasks {
		t.byID[x.ID] = i
	}
	return t
}

type table struct {
	tasks []datasets.Task
	byID  map[string]int
}

func (t *table) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		for _, x := range t.tasks {
			if ctx.Err() != nil || !yield(x, nil) {
				return
			}
		}
	}
}

func (t *table) Task(_ context.Context, id string) (datasets.Task, error) {
	if i, ok := t.byID[id]; ok {
		return t.tasks[i], nil
	}
	return datasets.Task{}, datasets.ErrNoTask
}
