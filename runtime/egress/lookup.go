package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	lookupKept   = 5 * time.Second // so that the questions for A and for AAAA are one
	maxLookups   = 256             // kept, or under way
	maxAddresses = 32              // of one answer
)

// lookups are answers of the host's resolver, kept for moments, and questions under way.
type lookups struct {
	mu sync.Mutex
	by map[string]*lookup
}

type lookup struct {
	done  chan struct{}
	addrs []netip.Addr
	err   error
	at    time.Time
}

// lookup resolves a clean name. What comes back is not judged.
func (g *Gate) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	ls := &g.lookups
	ls.mu.Lock()
	q := ls.by[name]
	if q == nil || !q.at.IsZero() && time.Since(q.at) > lookupKept {
		if !ls.room() {
			ls.mu.Unlock()
			return nil, g.deny(name, 0, "too many names at a time")
		}
		q = &lookup{done: make(chan struct{})}
		if ls.by == nil {
			ls.by = map[string]*lookup{}
		}
		if !g.spawn(func() { g.ask(name, q) }) {
			ls.mu.Unlock()
			return nil, net.ErrClosed
		}
		ls.by[name] = q
	}
	ls.mu.Unlock()
	select {
	case <-q.done:
		return q.addrs, q.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// room makes room for one more. The caller holds the lock.
func (ls *lookups) room() bool {
	if len(ls.by) < maxLookups {
		return true
	}
	for name, q := range ls.by {
		if !q.at.IsZero() {
			delete(ls.by, name)
		}
	}
	return len(ls.by) < maxLookups
}

func (g *Gate) ask(name string, q *lookup) {
	ctx, cancel := context.WithTimeout(g.ctx, lookupLimit)
	defer cancel()
	// With a dot at the end no search domain of this host is added.
	addrs, err := g.res.LookupNetIP(ctx, "ip", name+".")
	for i := range addrs {
		addrs[i] = addrs[i].WithZone("").Unmap()
	}
	g.lookups.mu.Lock()
	q.addrs, q.err, q.at = addrs[:min(len(addrs), maxAddresses)], err, time.Now()
	if err != nil {
		delete(g.lookups.by, name)
	}
	g.lookups.mu.Unlock()
	close(q.done)
}
