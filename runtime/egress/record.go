package egress

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// maxRefusals limits the refusals that are recorded one by one.
const maxRefusals = 300

// refusals records what was refused.
type refusals struct {
	mu   sync.Mutex
	at   map[refusedTarget]int
	kept []sandbox.Refusal
	more int64
}

type refusedTarget struct {
	host string
	port int
}

func (r *refusals) add(host string, port int, why string) {
	if len(host) > 255 {
		host = host[:255]
	}
	host = strings.Clone(host)
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, ok := r.at[refusedTarget{host, port}]; ok {
		r.kept[i].Count++
		return
	}
	if len(r.kept) >= maxRefusals {
		r.more++
		return
	}
	if r.at == nil {
		r.at = map[refusedTarget]int{}
	}
	r.at[refusedTarget{host, port}] = len(r.kept)
	r.kept = append(r.kept, sandbox.Refusal{Host: host, Port: port, Why: why, Count: 1})
}

func (r *refusals) list() []sandbox.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.kept)
	if r.more > 0 {
		out = append(out, sandbox.Refusal{Host: "(others)", Why: "too many places to list each", Count: r.more})
	}
	return out
}

// nameHistory records by which names this sandbox has looked up an address, to check connections to
// it.
type nameHistory struct {
	mu   sync.Mutex
	by   map[netip.Addr][]string
	ring []netip.Addr // in the order of the first lookup; the oldest is dropped first
	next int
}

const (
	maxAddrs = 4096
	maxNames = 8 // per address, the newest last
)

func (m *nameHistory) add(name string, addrs []netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[netip.Addr][]string{}
	}
	for _, a := range addrs {
		ns, known := m.by[a]
		if i := slices.Index(ns, name); i >= 0 {
			continue
		}
		// Use a new slice each time, since of returns the old one.
		ns = append(slices.Clone(ns), name)
		m.by[a] = ns[max(0, len(ns)-maxNames):]
		switch {
		case known:
		case len(m.ring) < maxAddrs:
			m.ring = append(m.ring, a)
		default:
			delete(m.by, m.ring[m.next])
			m.ring[m.next] = a
			m.next = (m.next + 1) % maxAddrs
		}
	}
}

func (m *nameHistory) of(a netip.Addr) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.by[a.Unmap()]
}
