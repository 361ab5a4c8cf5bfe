package queue

import (
	"slices"

	"github.com/evalrun/evalrun/harness"
)

// An order tracks which trials wait for others. It holds the trials that were read from the plan
// and are undecided, and the state of each world. A plan lists each trial behind those it waits
// for, so a trial that has not been read was decided by an earlier process and is not waited for.
type order struct {
	pending map[string]bool // undecided trials
	worlds  map[string]*world
}

type world struct {
	round int // current round
	left  int // undecided trials of the round that were read
}

func newOrder() order { return order{map[string]bool{}, map[string]*world{}} }

// read adds a job of the plan.
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

// waits reports whether another trial must be decided before j.
func (o *order) waits(j harness.Job) bool {
	return j.World != "" && (o.worlds[j.World].round != j.Round ||
		slices.ContainsFunc(j.After, func(t string) bool { return o.pending[t] }))
}

// decided removes a job that others need not wait for any more, whatever its result. After the last
// trial of a round the next round starts; some of its jobs may be parked.
func (o *order) decided(j harness.Job, parked []parked) {
	if j.World == "" || !o.pending[j.Trial] {
		return
	}
	delete(o.pending, j.Trial)
	w := o.worlds[j.World]
	if w.round != j.Round {
		return // it was dropped before its round started
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
