package browsers

import (
	"context"
	"net"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A prewarmed context holds the slow parts of opening a context, done in advance: the browser's
// context with a page and its process, and the listener of the proxy. The proxy is served, with the
// policy of the episode, only when a lease takes the context.
//
// A pool has at most one. It does not keep its browser from being ended or replaced.
type prewarmed struct {
	proxy    string // address of the proxy, for the browser
	listener net.Listener
	context  *cdp.Prewarmed // nil if only the listener was opened
}

// bypass sends requests for loopback addresses through the proxy, too.
const bypass = "<-loopback>"

// prewarmDelay is the pause between opening a context and prewarming the next one. The episode that
// has just begun needs the CPU first.
const prewarmDelay = 150 * time.Millisecond

// newPrewarmed opens the listener of a context's proxy.
func (inst *instance) newPrewarmed() (*prewarmed, error) {
	port, addr, err := inst.listen()
	if err != nil {
		return nil, err
	}
	return &prewarmed{proxy: "socks5://" + addr, listener: port}, nil
}

// close closes a context that no lease has taken. A nil context is ignored.
func (s *prewarmed) close() {
	if s == nil {
		return
	}
	s.listener.Close()
	if s.context != nil {
		s.context.Close(context.Background()) // on error it ends with the browser
	}
}

// takePrewarmed removes and returns the prewarmed context, nil if there is none. p.mu is held.
func (inst *instance) takePrewarmed() *prewarmed {
	s := inst.prewarmed
	if s != nil {
		inst.prewarmed, inst.p.prewarming = nil, false
	}
	return s
}

// dropPrewarmed closes the prewarmed context in the background. p.mu is held.
func (inst *instance) dropPrewarmed() {
	if inst.p.closed { // close does it
		return
	}
	if s := inst.takePrewarmed(); s != nil {
		inst.p.wg.Go(s.close)
	}
}

// prewarm opens a context in advance, in the background, unless the pool has one.
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

// prewarm opens a context in advance, and reports whether it did.
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

// wantsPrewarmed reports whether the browser accepts one more context. p.mu is held.
func (inst *instance) wantsPrewarmed() bool {
	p := inst.p
	select {
	case <-inst.b.Done():
		return false
	default:
	}
	return !p.closed && !inst.retired && inst.inUse < p.o.PerBrowser && (p.slots == nil || len(p.slots) < cap(p.slots))
}
