package browsers

import (
	"context"
	"net"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A prewarmed is what of a context takes longest to open, opened while nobody waits for it: the
// browser's part, with its page's process, and the port that will be its proxy's. What the context
// may do is said when it gets its lease, as it is for any other; until then nothing answers at that
// port.
//
// A pool has one at most, in a place that is free. It goes with its browser, which it keeps from
// nothing: neither from ending when it is not needed nor from being replaced.
type prewarmed struct {
	proxy    string // its address, for the browser
	listener net.Listener
	context  *cdp.Prewarmed // nil: not opened ahead
}

// bypass sends what is for this machine through the proxy, too.
const bypass = "<-loopback>"

// prewarmDelay is how long after a context's opening the next one is opened ahead: an episode that
// has just begun needs the processors itself.
const prewarmDelay = 150 * time.Millisecond

// newPrewarmed opens the port of a context.
func (inst *instance) newPrewarmed() (*prewarmed, error) {
	port, addr, err := inst.listen()
	if err != nil {
		return nil, err
	}
	return &prewarmed{proxy: "socks5://" + addr, listener: port}, nil
}

// close closes what nobody has taken, or is nothing.
func (s *prewarmed) close() {
	if s == nil {
		return
	}
	s.listener.Close()
	if s.context != nil {
		s.context.Close(context.Background()) // what it cannot close goes with the browser
	}
}

// takePrewarmed takes a browser's spare away; nil: it has none. p.mu is held.
func (inst *instance) takePrewarmed() *prewarmed {
	s := inst.prewarmed
	if s != nil {
		inst.prewarmed, inst.p.prewarming = nil, false
	}
	return s
}

// dropPrewarmed closes a browser's spare, if it has one, without waiting for that. p.mu is held.
func (inst *instance) dropPrewarmed() {
	if inst.p.closed { // end does it
		return
	}
	if s := inst.takePrewarmed(); s != nil {
		inst.p.wg.Go(s.close)
	}
}

// prewarm sees to it that a spare will be there, unless there is one. It does not wait.
func (p *Pool) prewarm(inst *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.prewarming || p.closed {
		return
	}
	p.prewarming = true
	p.wg.Go(func() {
		select {
		case <-time.After(prewarmDelay):
		case <-p.done:
			return
		case <-inst.b.Done():
		}
		if !inst.prewarm() {
			p.mu.Lock()
			p.prewarming = false
			p.mu.Unlock()
		}
	})
}

// prewarm opens a spare, and reports whether the browser has it.
func (inst *instance) prewarm() bool {
	p := inst.p
	p.mu.Lock()
	wanted := inst.wantsPrewarmed()
	p.mu.Unlock()
	if !wanted {
		return false
	}
	s, err := inst.newPrewarmed()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), openLimit)
	defer cancel()
	if s.context, err = inst.b.Prewarm(ctx, s.proxy, bypass); err != nil {
		s.close()
		return false
	}
	p.mu.Lock()
	if inst.wantsPrewarmed() { // still
		inst.prewarmed, s = s, nil
	}
	p.mu.Unlock()
	s.close()
	return s == nil
}

// wantsPrewarmed reports whether a browser will have contexts, and has a place for one more. p.mu is
// held.
func (inst *instance) wantsPrewarmed() bool {
	p := inst.p
	select {
	case <-inst.b.Done():
		return false
	default:
	}
	return !p.closed && !inst.retired && inst.inUse < p.o.PerBrowser && (p.slots == nil || len(p.slots) < cap(p.slots))
}
