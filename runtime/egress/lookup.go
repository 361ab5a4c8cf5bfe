package egress

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	lookupKept   = 5 * time.Second // so that queries for A and AAAA share a lookup
	maxLookups   = 256             // cached or in progress
	maxAddresses = 32              // of one answer
)

// lookups caches answers of the host's resolver for a short time, and the lookups in progress.
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

// lookup resolves a clean name. The policy is not applied to the result.
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

// room frees an entry of the cache if it is full. The caller holds the lock.
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
	// The dot at the end avoids this host's search domains.
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
