package cdp

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// errHung reports that the page was killed because it did not answer.
type errHung struct{ limit time.Duration }

func (e errHung) Error() string { return fmt.Sprintf("the page did not answer for %v", e.limit) }
func (e errHung) Unwrap() error { return ErrGone }

// Hung reports whether err means that a page was ended because it did not answer.
func Hung(err error) bool { return errors.As(err, new(errHung)) }

// unanswered records how long a session has not answered.
type unanswered struct {
	since  time.Time
	probed time.Time // when a probe was sent; zero if none was
}

// EndUnresponsive ends pages that have answered nothing for limit: an endless script, a synchronous
// request without a response, a stopped process. Their pending and later calls fail with an error
// that is [ErrGone]. A page with a slow call is probed with another one, and stays if it answers
// that. EndUnresponsive must be called several times within limit.
//
// While a navigation waits for its server, the browser delays all calls to the page. A navigation
// that lasts until the page would be probed is therefore stopped. Those of [Page.Goto] are not:
// they have their own timeout.
func (b *Browser) EndUnresponsive(limit time.Duration) {
	ask, end := b.unresponsive(time.Now(), limit)
	for _, s := range ask {
		// any call will do to get an answer
		b.Start(s, "Runtime.evaluate", evaluate{Expression: "0"})
	}
	if len(ask)+len(end) == 0 {
		return
	}
	for _, c := range b.allContexts() {
		for _, p := range c.Pages() {
			switch {
			case slices.Contains(end, p.session):
				p.crash(errHung{limit})
			case slices.Contains(ask, p.session) && p.isNavigating():
				b.Send(p.session, "Page.stopLoading", nil)
			}
		}
	}
}

// isNavigating reports whether a navigation of the main frame is pending.
func (p *Page) isNavigating() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return len(p.navigating) > 0
}

// unresponsive returns the sessions to probe, and those to end.
func (c *Conn) unresponsive(now time.Time, limit time.Duration) (ask, end []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	going := map[string]bool{}
	for _, p := range c.pending {
		going[p.session] = going[p.session] || p.method == "Page.navigate"
	}
	owing := map[string]*unanswered{}
	owe := func(session string) {
		if session == "" || owing[session] != nil || going[session] {
			return
		}
		s := c.unanswered[session]
		if s == nil {
			s = &unanswered{since: now}
		}
		owing[session] = s
	}
	for _, p := range c.pending {
		owe(p.session)
	}
	for session := range c.expected {
		owe(session)
	}
	c.unanswered = owing
	for id, s := range owing {
		switch {
		case s.probed.IsZero() && now.Sub(s.since) > limit/3:
			s.probed = now
			ask = append(ask, id)
		case !s.probed.IsZero() && now.Sub(s.probed) > limit-limit/3:
			end = append(end, id)
		}
	}
	return ask, end
}

// Waiting reports whether a call to a page has had no answer for d, even if the page answers others.
// Navigations do not count: they wait for servers.
func (c *Conn) Waiting(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pending {
		if p.session != "" && p.method != "Page.navigate" && time.Since(p.sent) >= d {
			return true
		}
	}
	return false
}

// expectEvent makes a session count as unanswered while an event of it is awaited, until the caller
// calls the returned function.
func (c *Conn) expectEvent(session string) (done func()) {
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

// crash ends a page that hangs, and its process.
func (p *Page) crash(why error) {
	p.c.mu.Lock()
	p.crashed = true
	if p.crashCause == nil {
		p.crashCause = why
	}
	p.c.notify()
	p.c.mu.Unlock()
	p.c.b.Send(p.session, "Page.crash", nil)
	p.c.b.End(p.session, why)
}

// crashError returns the error of a crashed page. The context's lock is held.
func (p *Page) crashError() error {
	if p.crashCause != nil {
		return p.crashCause
	}
	return errCrashed
}
