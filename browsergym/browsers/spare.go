package browsers

import (
	"context"
	"net"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A spare is what of a context takes longest to open, opened while nobody waits for it: the
// browser's part, with its page's process, and the port that will be its proxy's. What the context
// may do is said when it gets its lease, as it is for any other; until then nothing answers at that
// port.
//
// A pool has one at most, in a place that is free. It goes with its browser, which it keeps from
// nothing: neither from ending when it is not needed nor from being replaced.
type spare struct {
	proxy string // its address, for the browser
	port  net.Listener
	blank *cdp.Blank // nil: not opened ahead
}

// bypass sends what is for this machine through the proxy, too.
const bypass = "<-loopback>"

// spareAfter is how long after a context's opening the next one is opened ahead: an episode that
// has just begun needs the processors itself.
const spareAfter = 150 * time.Millisecond

// newSpare opens the port of a context.
func (u *unit) newSpare() (*spare, error) {
	port, addr, err := u.listen()
	if err != nil {
		return nil, err
	}
	return &spare{proxy: "socks5://" + addr, port: port}, nil
}

// drop closes what nobody has taken, or is nothing.
func (s *spare) drop() {
	if s == nil {
		return
	}
	s.port.Close()
	if s.blank != nil {
		s.blank.Close(context.Background()) // what it cannot close goes with the browser
	}
}

// takeSpare takes a browser's spare away; nil: it has none. p.mu is held.
func (u *unit) takeSpare() *spare {
	s := u.spare
	if s != nil {
		u.spare, u.p.ahead = nil, false
	}
	return s
}

// dropSpare closes a browser's spare, if it has one, without waiting for that. p.mu is held.
func (u *unit) dropSpare() {
	if u.p.closed { // end does it
		return
	}
	if s := u.takeSpare(); s != nil {
		u.p.wg.Go(s.drop)
	}
}

// prepare sees to it that a spare will be there, unless there is one. It does not wait.
func (p *Pool) prepare(u *unit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ahead || p.closed {
		return
	}
	p.ahead = true
	p.wg.Go(func() {
		select {
		case <-time.After(spareAfter):
		case <-p.done:
			return
		case <-u.b.Done():
		}
		if !u.openSpare() {
			p.mu.Lock()
			p.ahead = false
			p.mu.Unlock()
		}
	})
}

// openSpare opens a spare, and reports whether the browser has it.
func (u *unit) openSpare() bool {
	p := u.p
	p.mu.Lock()
	wanted := u.wantsSpare()
	p.mu.Unlock()
	if !wanted {
		return false
	}
	s, err := u.newSpare()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), openLimit)
	defer cancel()
	if s.blank, err = u.b.NewBlank(ctx, s.proxy, bypass); err != nil {
		s.drop()
		return false
	}
	p.mu.Lock()
	if u.wantsSpare() { // still
		u.spare, s = s, nil
	}
	p.mu.Unlock()
	s.drop()
	return s == nil
}

// wantsSpare reports whether a browser will have contexts, and has a place for one more. p.mu is
// held.
func (u *unit) wantsSpare() bool {
	p := u.p
	select {
	case <-u.b.Done():
		return false
	default:
	}
	return !p.closed && !u.retired && u.taken < p.o.PerBrowser && (p.room == nil || len(p.room) < cap(p.room))
}
