package queue

import (
	"slices"

	"github.com/evalrun/evalrun/harness"
)

// An order knows which trials wait for others. It remembers those that were read from the plan and
// are not decided, and a line for each world. As a plan names a trial behind those that it waits
// for, one that it has not read was decided by an earlier process, and is nothing to wait for.
type order struct {
	pending map[string]bool // trials
	worlds  map[string]*world
}

type world struct {
	round int // that is being played
	left  int // its trials that were read and are not decided
}

func newOrder() order { return order{map[string]bool{}, map[string]*world{}} }

// read takes notice of a job of the plan.
func (o *order) read(j harness.Job) {
	if j.World == "" {
		return
	}
	o.pending[j.Trial] = true
	w := o.worlds[j.World]
	if w == nil {
		w = &world{}
		o.worlds[j.World] = w
	}
	if w.left == 0 {
		w.round = j.Round
	}
	if w.round == j.Round {
		w.left++
	}
}

// waits reports whether something has to be decided before j.
func (o *order) waits(j harness.Job) bool {
	return j.World != "" && (o.worlds[j.World].round != j.Round ||
		slices.ContainsFunc(j.After, func(t string) bool { return o.pending[t] }))
}

// decided takes a job out that needs not be waited for any more: whatever became of it. After the
// last one of a round comes the next, of which some may be among the parked.
func (o *order) decided(j harness.Job, parked []parked) {
	if j.World == "" || !o.pending[j.Trial] {
		return
	}
	delete(o.pending, j.Trial)
	w := o.worlds[j.World]
	if w.round != j.Round {
		return // it was dropped before its round began
	}
	if w.left--; w.left > 0 {
		return
	}
	next := 0
	for _, p := range parked {
		if p.World == j.World && (next == 0 || p.Round < next) {
			next = p.Round
		}
	}
	if next == 0 {
		return
	}
	w.round = next
	for _, p := range parked {
		if p.World == j.World && p.Round == next {
			w.left++
		}
	}
}
