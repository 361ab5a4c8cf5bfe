package model

import "sync/atomic"

// Counter returns what a wrapper asks once a call for the call's number: N where it is set, else
// its own count from 0.
func (b Binding) Counter() func() int {
	if b.N != nil {
		return b.N
	}
	n := new(atomic.Int64)
	return func() int { return int(n.Add(1)) - 1 }
}
