package pool

import (
	"context"
	"sync"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Requests are admitted by limits as long as these fit into the budget. Beyond that, they are
// admitted by use: the highest that sandboxes with the same Reserve.Like were seen to use, with a
// margin, and never less than what a running one uses now. That takes enough measurements, free
// memory of the host for all that running sandboxes may still take up by that estimate, and a sum
// of the limits that is not more than a few times the budget.
const (
	enough     = 8 // sandboxes measured before their use is believed
	overcommit = 4 // the sum of the limits may be so many times the budget
	// sampling is the time between two looks at what sandboxes use. They are only looked at if
	// admission depends on it.
	sampling = 2 * time.Second
	// asking limits the answer of one sandbox.
	asking = 2 * time.Second
)

// seen is what sandboxes of one kind used.
type seen struct {
	n   int   // sandboxes that were measured to their end
	max int64 // bytes
}

// by returns the memory to count for such a sandbox that may use up to limit.
func (s *seen) by(limit int64) int64 {
	if s == nil || s.n < enough {
		return limit
	}
	return min(limit, s.max+s.max/2+64<<20)
}

// estimate sets what a waiting lease is counted at. The caller holds mu.
func (p *Pool) estimate(l *lease) {
	for i := range l.slots {
		s := &l.slots[i]
		s.size = s.need
		if s.like != "" {
			s.size.use = p.seen[s.like].by(s.need.mem)
		}
	}
}

// fitsByUse reports whether need can be admitted by use, if all is then in use. The caller holds mu.
func (p *Pool) fitsByUse(all, need size) bool {
	most := p.budget.mem
	if p.options.Free == nil || most == 0 || !all.fewer(p.budget) || all.use > most || all.mem/overcommit > most {
		return false
	}
	free, ok := p.options.Free()
	return ok && free-most/8 >= all.use-p.now() // the budget is a part of what is free, so a rest stays
}

// now returns what the sandboxes in use were last seen to use together. The caller holds mu.
func (p *Pool) now() (n int64) {
	for l := range p.leases {
		for i := range l.slots {
			n += l.slots[i].now
		}
	}
	return n
}

// learn measures a sandbox that nobody uses any more.
func (p *Pool) learn(like string, sb sandbox.Sandbox) {
	if like == "" || p.options.Free == nil {
		return
	}
	if _, most, ok := memory(sb); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		s := p.saw(like, most)
		s.n++
	}
}

// saw notes what a sandbox used. The caller holds mu.
func (p *Pool) saw(like string, most int64) *seen {
	s := p.seen[like]
	if s == nil {
		s = &seen{}
		p.seen[like] = s
	}
	s.max = max(s.max, most)
	return s
}

// memory asks a sandbox for what it uses now, and the maximum so far.
func memory(sb sandbox.Sandbox) (now, most int64, ok bool) {
	st, ok := sandbox.As[sandbox.Stater](sb)
	if !ok {
		return 0, 0, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), asking)
	defer cancel()
	s, err := st.Stats(ctx)
	if err != nil || s.Memory == nil || s.MaxMemory == nil {
		return 0, 0, false
	}
	return *s.Memory, *s.MaxMemory, true
}

// measure looks at what sandboxes use as long as a request waits or some were admitted by use. The
// caller holds mu.
func (p *Pool) measure() {
	if p.measuring || p.closed || p.options.Free == nil || !p.depends() {
		return
	}
	p.measuring = true
	p.sampler.Go(func() {
		for {
			p.sample()
			p.mu.Lock()
			if !p.depends() || p.closed {
				p.measuring = false
				p.mu.Unlock()
				return
			}
			p.mu.Unlock()
			select {
			case <-time.After(sampling):
			case <-p.ctx.Done():
			}
		}
	})
}

// depends reports whether admission depends on what sandboxes use. The caller holds mu.
func (p *Pool) depends() bool {
	return p.budget.mem > 0 && len(p.leases) > 0 &&
		(p.used.mem > p.budget.mem || len(p.waiting) > 0 && p.waiting[0].lease.lighter())
}

// lighter reports whether some sandbox is counted at less than its limit. The caller holds the
// pool's mu.
func (l *lease) lighter() bool {
	for i := range l.slots {
		if s := &l.slots[i]; s.size.use < s.size.mem {
			return true
		}
	}
	return false
}

// sample asks all sandboxes in use what they use, and counts those that use more than they were
// admitted with at that.
func (p *Pool) sample() {
	type live struct {
		l  *lease
		sb *leasedSandbox
	}
	var all []live
	p.mu.Lock()
	leases := make([]*lease, 0, len(p.leases))
	for l := range p.leases {
		leases = append(leases, l)
	}
	p.mu.Unlock()
	for _, l := range leases {
		l.mu.Lock()
		for _, sb := range l.out {
			all = append(all, live{l, sb})
		}
		l.mu.Unlock()
	}
	var wg sync.WaitGroup
	turns := make(chan struct{}, 8)
	for _, x := range all {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			now, most, ok := memory(x.sb)
			if !ok {
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			s := &x.l.slots[x.sb.slot]
			if x.sb.closed {
				return
			}
			if s.now = now; s.like != "" {
				p.saw(s.like, most)
			}
			if more := now - s.size.use; more > 0 {
				s.size.use += more
				p.used.use += more
			}
		})
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grant()
}
