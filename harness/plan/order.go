package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/harness/record"
)

// contract removes the tasks that keep rejects from the order of one benchmark's tasks. A task that
// came after a removed one then comes after that one's predecessors. after holds IDs; unknown ones
// are ignored. The result holds indices without duplicates. A cycle is an error that names its
// tasks.
func contract(ids []string, after [][]string, keep func(i int) bool) ([][]int, error) {
	at := make(map[string]int, len(ids))
	for i, id := range ids {
		at[id] = i
	}
	const (
		fresh = iota
		open  // on the current path
		done
	)
	state := make([]int, len(ids))
	out := make([][]int, len(ids)) // for a removed task: the predecessors that its successors inherit
	var path []int
	var visit func(i int) error
	visit = func(i int) error {
		switch state[i] {
		case done:
			return nil
		case open:
			return circle(ids, path[slices.Index(path, i):])
		}
		state[i] = open
		path = append(path, i)
		for _, id := range after[i] {
			j, ok := at[id]
			if !ok {
				continue
			}
			if err := visit(j); err != nil {
				return err
			}
			before := out[j]
			if keep(j) {
				before = []int{j}
			}
			for _, k := range before {
				if !slices.Contains(out[i], k) {
					out[i] = append(out[i], k)
				}
			}
		}
		path = path[:len(path)-1]
		state[i] = done
		return nil
	}
	for i := range ids {
		if err := visit(i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func circle(ids []string, path []int) error {
	var names []string
	for _, i := range append(path, path[0]) {
		names = append(names, fmt.Sprintf("%q", ids[i]))
	}
	if len(names) > 8 {
		names = append(append(names[:6], "…"), names[len(names)-1])
	}
	return fmt.Errorf("tasks come after each other in a circle: %s; take one of these out of the other's after",
		strings.Join(names, " after "))
}

// before returns, for each task of a plan, the indices of the tasks it comes after.
func before(p *record.Plan) [][]int {
	at := map[[2]string]int{}
	for i, t := range p.Tasks {
		at[[2]string{t.Benchmark, t.ID}] = i
	}
	out := make([][]int, len(p.Tasks))
	for i, t := range p.Tasks {
		for _, id := range t.After {
			if j, ok := at[[2]string{t.Benchmark, id}]; ok {
				out[i] = append(out[i], j)
			}
		}
	}
	return out
}

// shuffled returns the order in which a plan's tasks run: random by the plan's seed, but each task
// behind those it comes after.
func shuffled(p *record.Plan, before [][]int) []int {
	drawn := rand.New(rand.NewPCG(p.Seed, 0x706c616e)).Perm(len(p.Tasks))
	out := make([]int, 0, len(drawn))
	seen := make([]bool, len(drawn))
	var visit func(i int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		for _, j := range before[i] {
			visit(j)
		}
		out = append(out, i)
	}
	for _, i := range drawn {
		visit(i)
	}
	return out
}
