package text

import (
	"math"
	"slices"

	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// amend applies a later grade to a trial. A grade equal to the current one changes nothing.
func (r *Results) amend(s *slot, a *record.Amend) {
	g := ledger.Grade{Status: statuses[s.status], End: ends[s.end]}
	g.Amend(a)
	reward, flags := value(g.Reward), r.flagBits(g.Flags)
	same := s.reward == reward || math.IsNaN(s.reward) && math.IsNaN(reward)
	opinion := a.Confirmation != nil && a.Status == "" // on a grade that stays
	s.amended = s.amended || !opinion && (!same || s.flags != flags || g.Status != statuses[s.status])
	s.reward, s.flags = reward, flags
	s.opinion, s.used = 0, false
	if c := g.Confirmation; c != nil {
		s.opinion, s.used = uint8(place(opinions, c.State)), len(c.Slipped) > 0
	}
	s.graded = r.versionPlace(a.Task)
	s.status, s.end = status(place(statuses, g.Status)), end(place(ends, g.End))
	if a.Status == record.Scored && a.End != record.Broke {
		s.fault = 0
	}
}

// versionPlace returns the index of a task digest in versions, from 1, or 0 if it is the planned
// digest.
func (r *Results) versionPlace(digest string) uint32 {
	if digest == "" {
		return 0
	}
	i, ok := r.version[digest]
	if !ok {
		r.versions = append(r.versions, digest)
		i = uint32(len(r.versions))
		if r.version == nil {
			r.version = map[string]uint32{}
		}
		r.version[digest] = i
	}
	return i
}

// gradedBy returns the digest of the task version by which a trial was regraded, or "" if its
// attempt's own grade stands.
func (r *Results) gradedBy(s *slot) string {
	if s.graded == 0 {
		return ""
	}
	return r.versions[s.graded-1]
}

// driverPlace returns the index of a driver's name, from 1, or 0 if there is no name.
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
