package cdp

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// errHung: the page did not answer for so long that it was given up.
type errHung struct{ limit time.Duration }

func (e errHung) Error() string { return fmt.Sprintf("the page did not answer for %v", e.limit) }
func (e errHung) Unwrap() error { return ErrGone }

// Hung reports whether err says that a page was given up because it did not answer.
func Hung(err error) bool { return errors.As(err, new(errHung)) }

// A silence is how long a session owes us an answer.
type silence struct {
	since time.Time
	asked time.Time // whether it is there at all
}

// EndSilent ends pages that have answered nothing for limit, as they would hold up who looks at
// them for ever: a script that never ends, a request that a script waits for and nobody answers, a
// process that was stopped. Their calls, those that wait and all that come, fail with an error that
// is [ErrGone]. A page that only takes its time with one answer is asked something else meanwhile,
// and is well when it answers that. It is to be called again and again, several times within limit.
//
// While a navigation waits for its server, the browser delays all calls to the page. A navigation
// that lasts until the page would be probed is therefore stopped. Those of [Page.Goto] are not:
// they have their own timeout.
func (b *Browser) EndSilent(limit time.Duration) {
	ask, end := b.silent(time.Now(), limit)
	for _, s := range ask {
		// whose answer ends the silence, and is of no other use
		b.Start(s, "Runtime.evaluate", evaluate{Expression: "0"})
	}
	if len(ask)+len(end) == 0 {
		return
	}
	for _, c := range b.all() {
		for _, p := range c.Pages() {
			switch {
			case slices.Contains(end, p.session):
				p.giveUp(errHung{limit})
			case slices.Contains(ask, p.session) && p.leaving():
				b.Send(p.session, "Page.stopLoading", nil)
			}
		}
	}
}

// leaving reports whether the page is on its way to another document.
func (p *Page) leaving() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return len(p.navigating) > 0
}

// silent lists the sessions that are to be asked whether they are there, and those that are not.
func (c *Conn) silent(now time.Time, limit time.Duration) (ask, end []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	going := map[string]bool{}
	for _, p := range c.pending {
		going[p.session] = going[p.session] || p.method == "Page.navigate"
	}
	owing := map[string]*silence{}
	owe := func(session string) {
		if session == "" || owing[session] != nil || going[session] {
			return
		}
		s := c.owing[session]
		if s == nil {
			s = &silence{since: now}
		}
		owing[session] = s
	}
	for _, p := range c.pending {
		owe(p.session)
	}
	for session := range c.expected {
		owe(session)
	}
	c.owing = owing
	for id, s := range owing {
		switch {
		case s.asked.IsZero() && now.Sub(s.since) > limit/3:
			s.asked = now
			ask = append(ask, id)
		case !s.asked.IsZero() && now.Sub(s.asked) > limit-limit/3:
			end = append(end, id)
		}
	}
	return ask, end
}

// expect says that a session is waited for in another way than by a call, until the function that
// it returns is called.
func (c *Conn) expect(session string) (done func()) {
	add := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.expected == nil {
			c.expected = map[string]int{}
		}
		if c.expected[session] += n; c.expected[session] <= 0 {
			delete(c.expected, session)
		}
	}
	add(1)
	return func() { add(-1) }
}

// giveUp ends a page that hangs, and its process, which would go on for nobody.
func (p *Page) giveUp(why error) {
	p.c.mu.Lock()
	p.crashed = true
	if p.why == nil {
		p.why = why
	}
	p.c.change()
	p.c.mu.Unlock()
	p.c.b.Send(p.session, "Page.crash", nil)
	p.c.b.End(p.session, why)
}

// died is why a page that has crashed did so. The context's lock is held.
func (p *Page) died() error {
	if p.why != nil {
		return p.why
	}
	return errCrashed
}
