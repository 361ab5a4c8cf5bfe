package model

import "sync/atomic"

// Counter returns a function that wrappers call once for each call to get the call's number: N if
// it is set, else a counter from 0.
func (b Binding) Counter() func() int {
	if b.N != nil {
		return b.N
	}
	n := new(atomic.Int64)
	return func() int { return int(n.Add(1)) - 1 }
}
