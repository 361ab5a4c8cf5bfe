package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// A Denied error says that the policy has refused a connection.
type Denied struct {
	Host string // as requested; hostile
	Port int
	Why  string
}

func (d *Denied) Error() string {
	return fmt.Sprintf("%s refused by the network policy of this machine: %s",
		net.JoinHostPort(d.Host, fmt.Sprint(d.Port)), d.Why)
}

func (g *Gate) deny(host string, port int, why string) error {
	g.refused.add(host, port, why)
	return &Denied{host, port, why}
}

const (
	dialLimit   = 20 * time.Second // one address
	lookupLimit = 10 * time.Second
	maxTries    = 4 // addresses of one name
)

// dial connects to a host: a name or a numeric address.
func (g *Gate) dial(ctx context.Context, host string, port uint16) (*tracked, error) {
	c, err := g.reach(ctx, host, port)
	if err != nil && g.failed != nil {
		g.failed(host, port, err)
	}
	return c, err
}

func (g *Gate) reach(ctx context.Context, host string, port uint16) (*tracked, error) {
	if port == 0 {
		return nil, g.deny(host, 0, "not a port")
	}
	if g.own != nil {
		if c, ours, err := g.connectOwn(ctx, strings.ToLower(host), port); ours {
			return c, err
		}
	}
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.WithZone("").Unmap()
		return g.connect(ctx, "tcp", netip.AddrPortFrom(a, port), host, g.names.of(a))
	}
	name, err := cleanName(host)
	if err != nil || looksNumeric(name) {
		return nil, g.deny(host, int(port), WhyBadName)
	}
	p := g.Policy()
	if why := p.Name(name); why != "" {
		// A list of ranges may contain the name's addresses, but to find out it would have to be
		// resolved, and a query to a name server can carry data out.
		return nil, g.deny(name, int(port), why)
	}
	addrs, err := g.lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, &net.DNSError{Err: "no address", Name: name, IsNotFound: true}
	}
	good := g.reachable(name, addrs, int(port))
	if len(good) == 0 {
		return nil, &Denied{name, int(port), "its addresses are not public, or not on the list"}
	}
	for _, a := range good[:min(len(good), maxTries)] {
		var c *tracked
		c, err = g.connect(ctx, "tcp", netip.AddrPortFrom(a, port), name, []string{name})
		if err == nil {
			return c, nil
		}
	}
	return nil, err
}

// connect checks an address and connects to it. host is the name or address that was requested, for
// the record.
func (g *Gate) connect(ctx context.Context, network string, to netip.AddrPort, host string,
	names []string) (*tracked, error) {
	ctx, cut := context.WithCancel(ctx)
	f := &flow{to: to, names: names, udp: network == "udp", cut: cut}
	g.mu.Lock()
	why := f.check(g.policy)
	// The end of a UDP flow is not known, so UDP may use only half of the flows.
	if why == "" && (len(g.flows) >= g.max || f.udp && g.udp >= (g.max+1)/2) {
		why = WhyMany
	}
	if why != "" || g.closed {
		g.mu.Unlock()
		cut()
		if why == "" {
			return nil, net.ErrClosed
		}
		return nil, g.deny(host, int(to.Port()), why)
	}
	g.flows[f] = struct{}{}
	if f.udp {
		g.udp++
	}
	g.mu.Unlock()

	dctx, cancel := context.WithTimeout(ctx, dialLimit)
	c, err := g.dialer.DialContext(dctx, network, to.String())
	cancel()
	g.mu.Lock()
	why = f.check(g.policy) // check again: the policy may have changed meanwhile
	if err == nil && why == "" && !g.closed {
		f.cut = func() { c.Close() }
		g.mu.Unlock()
		cut()
		return &tracked{Conn: c, g: g, f: f}, nil
	}
	g.forget(f)
	g.mu.Unlock()
	cut()
	if c != nil {
		c.Close()
	}
	if why != "" {
		return nil, g.deny(host, int(to.Port()), why)
	}
	if err == nil {
		err = net.ErrClosed
	}
	return nil, err
}

// connectOwn connects to a target that Options.Own serves.
func (g *Gate) connectOwn(ctx context.Context, host string, port uint16) (_ *tracked, ours bool, err error) {
	dctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	c, ours, err := g.own(dctx, host, port)
	if !ours || err != nil {
		return nil, ours, err
	}
	f := &flow{own: true, cut: func() { c.Close() }}
	g.mu.Lock()
	full, closed := len(g.flows) >= g.max, g.closed
	if !full && !closed {
		g.flows[f] = struct{}{}
	}
	g.mu.Unlock()
	switch {
	case closed:
		c.Close()
		return nil, true, net.ErrClosed
	case full:
		c.Close()
		return nil, true, g.deny(host, int(port), WhyMany)
	}
	return &tracked{Conn: c, g: g, f: f}, true, nil
}

// spawn runs f in a goroutine that Close waits for. If the gate is closed, it returns false and
// does not run f.
func (g *Gate) spawn(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(f)
	return true
}

// forget removes a flow. The caller holds the lock.
func (g *Gate) forget(f *flow) {
	delete(g.flows, f)
	if f.udp {
		g.udp--
	}
}

// A flow is one outgoing connection, or one being made.
type flow struct {
	to    netip.AddrPort
	names []string
	udp   bool
	own   bool   // served by Options.Own; no policy applies
	cut   func() // closes it; called with the gate's lock
	gone  bool   // it was closed by cut
}

// check returns why a policy forbids the flow, or "".
func (f *flow) check(p Policy) string {
	if f.own {
		return ""
	}
	a := f.to.Addr()
	why := p.Addr(a, f.names...)
	if why == "" && f.udp && p.mode == "allow" && !p.covers(a) {
		return WhyUDP
	}
	if why == "" && ownAddress(a) && !p.exactly(a) {
		return WhyHost
	}
	return why
}

// tracked is a connection that the gate can close.
type tracked struct {
	net.Conn
	g    *Gate
	f    *flow
	once sync.Once
}

func (t *tracked) Close() error {
	err := t.Conn.Close()
	t.once.Do(func() {
		t.g.mu.Lock()
		t.g.forget(t.f)
		t.g.mu.Unlock()
	})
	return err
}

// whenCut registers f to be called too when the gate closes the connection: the relay may be
// waiting for its peer inside.
func (t *tracked) whenCut(f func()) {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	cut := t.f.cut
	t.f.cut = func() { cut(); f() }
	if t.f.gone {
		f()
	}
}

// CloseWrite signals the end of the data.
func (t *tracked) CloseWrite() error {
	if c, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return t.Close()
}

// ownAddress reports whether an address belongs to this host, on any interface. Services there are
// not meant for sandboxes, and the host's firewall does not see such a connection. It asks the
// kernel each time, since addresses change: a socket connected to an own address uses that address
// as its source. Connecting UDP sends nothing.
func ownAddress(a netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false // no route to it
	}
	defer c.Close()
	from, ok := c.LocalAddr().(*net.UDPAddr)
	return ok && from.AddrPort().Addr().Unmap() == a.Unmap()
}
