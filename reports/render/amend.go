package render

import (
	"math"
	"slices"

	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// amend takes a later grade for a trial's. One that says the same changes nothing.
func (r *Results) amend(s *slot, a *record.Amend) {
	g := ledger.Grade{Status: statuses[s.status], End: ends[s.end]}
	g.Amend(a)
	reward, flags := value(g.Reward), r.flagBits(g.Flags)
	same := s.reward == reward || math.IsNaN(s.reward) && math.IsNaN(reward)
	s.amended = s.amended || !same || s.flags != flags || g.Status != statuses[s.status]
	s.reward, s.flags = reward, flags
	s.status, s.end = status(place(statuses, g.Status)), end(place(ends, g.End))
	if a.Status == record.Scored && a.End != record.Broke {
		s.fault = 0
	}
}

// driverPlace is the place of a driver's name, from 1; 0: none.
func (r *Results) driverPlace(name string) uint8 {
	if name == "" {
		return 0
	}
	i := slices.Index(r.drivers, name)
	if i < 0 && len(r.drivers) < math.MaxUint8 {
		i = len(r.drivers)
		r.drivers = append(r.drivers, name)
	}
	return uint8(i + 1)
}

func (r *Results) flagBits(names []string) (bits uint32) {
	for _, n := range names {
		i := -1
		for j, f := range r.flags {
			if f == n {
				i = j
			}
		}
		if i < 0 && len(r.flags) < 32 {
			i = len(r.flags)
			r.flags = append(r.flags, n)
		}
		if i >= 0 {
			bits |= 1 << i
		}
	}
	return bits
}
