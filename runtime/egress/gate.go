package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Port of a machine's loopback on which its proxy listens. It lies above the range from which Linux gives out ports, so that
// nothing inside takes it by chance.
const Port = 61080

// DefaultConns is how many connections a machine may have open at a time.
const DefaultConns = 256

// A Resolver looks names up; *net.Resolver is one. Names come in lower case, with a dot at the end.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A Dialer connects to addresses; *net.Dialer is one. It is only given an address in numbers, for "tcp" and "udp".
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Options of a gate. The zero value is what drivers want.
type Options struct {
	Resolver Resolver // nil: this host's
	Dialer   Dialer   // nil: this host's network
	Port     int      // 0: [Port]
	Conns    int      // open at a time; 0: [DefaultConns]

	// Link is the machine's network interface, if the driver has opened it itself. The gate owns it, also on error. Nil: the
	// executor is asked for its own, which it has when it was started with Config.Tun.
	Link Link
}

// Env is what tells programs of the proxy, to be put into a machine's environment before it starts. direct are hosts that are
// reached without it: a machine's services.
func Env(direct ...string) map[string]string {
	proxy := fmt.Sprintf("http://127.0.0.1:%d", Port)
	no := strings.Join(append([]string{"localhost", "127.0.0.1", "::1"}, direct...), ",")
	m := map[string]string{"NO_PROXY": no, "no_proxy": no}
	// ALL_PROXY is the HTTP one too: many clients refuse to start over a SOCKS URL for which they lack a library.
	for _, k := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		m[k], m[strings.ToLower(k)] = proxy, proxy
	}
	return m
}

// A Gate is the way out of one machine. Its methods may be called from several goroutines.
type Gate struct {
	res    Resolver
	dialer Dialer
	why    string // not transparent, and why

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines of the gate
	ends   []func()       // run once by Close, before it waits

	names   memory
	lookups lookups
	refused refusals

	mu     sync.Mutex
	policy Policy
	flows  map[*flow]struct{}
	udp    int // of the flows
	max    int
	closed bool
}

// Attach hangs a gate on a machine. It listens on the machine's loopback, takes the machine's network interface where there is one, and
// serves both until Close or the end of the executor; ctx bounds the start only. The machine should know of the proxy (see [Env]) and its
// name server (see [ResolvConf]) before it runs commands. On error nothing is left behind.
func Attach(ctx context.Context, c *executor.Client, n sandbox.Network, o Options) (*Gate, error) {
	p, err := Parse(n)
	if err != nil {
		if o.Link != nil {
			o.Link.Close()
		}
		return nil, err
	}
	g := newGate(p, o)
	port := o.Port
	if port == 0 {
		port = Port
	}
	l, err := c.Listen(ctx, port)
	if err != nil {
		if o.Link != nil {
			o.Link.Close()
		}
		return nil, fmt.Errorf("network: opening the proxy's port: %w", err)
	}
	g.serveProxy(l)
	link := o.Link
	if link == nil {
		link, err = openLink(ctx, c)
	}
	if err != nil {
		u := (*sandbox.Unsupported)(nil)
		if !errors.As(err, &u) {
			g.Close()
			return nil, fmt.Errorf("network: opening the interface: %w", err)
		}
		g.why = u.What
		return g, nil
	}
	g.serveLink(link)
	return g, nil
}

func newGate(p Policy, o Options) *Gate {
	g := &Gate{res: o.Resolver, dialer: o.Dialer, policy: p, max: o.Conns, flows: map[*flow]struct{}{}}
	if g.res == nil {
		g.res = net.DefaultResolver
	}
	if g.dialer == nil {
		g.dialer = &net.Dialer{}
	}
	if g.max == 0 {
		g.max = DefaultConns
	}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Transparent reports whether programs that know no proxy reach the network, too; if not, why says so for people.
func (g *Gate) Transparent() (ok bool, why string) { return g.why == "", g.why }

// Policy is the one that is in force.
func (g *Gate) Policy() Policy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.policy
}

// Rewire puts another policy in force. When it returns, nothing new is let through that it forbids, and what was open of it is cut.
// A policy that is wrong changes nothing.
func (g *Gate) Rewire(_ context.Context, n sandbox.Network) error {
	p, err := Parse(n)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policy = p
	for f := range g.flows {
		if f.judge(p) != "" {
			f.gone = true
			f.cut()
		}
	}
	return nil
}

// Refused lists what was asked for and not let through, each host and port once, in the order of their first time; what is past a
// bound is counted in a last entry. It works after Close.
func (g *Gate) Refused() []sandbox.Refusal { return g.refused.list() }

// Close ends the gate and all its connections, and waits for its goroutines. It may be called again.
func (g *Gate) Close() error {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	for f := range g.flows {
		f.gone = true
		f.cut()
	}
	g.mu.Unlock()
	if first {
		g.cancel()
		for _, end := range g.ends {
			end()
		}
	}
	g.wg.Wait()
	return nil
}

// A Denied error says that the policy, and not the network, has refused a place.
type Denied struct {
	Host string // as it was asked for; hostile
	Port int
	Why  string
}

func (d *Denied) Error() string {
	return fmt.Sprintf("%s refused by the network policy of this machine: %s", net.JoinHostPort(d.Host, fmt.Sprint(d.Port)), d.Why)
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

// dial connects to a host, a name or an address in numbers, of which it knows nothing yet.
func (g *Gate) dial(ctx context.Context, host string, port uint16) (*tracked, error) {
	if port == 0 {
		return nil, g.deny(host, 0, "not a port")
	}
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.WithZone("").Unmap()
		return g.connect(ctx, "tcp", netip.AddrPortFrom(a, port), host, g.names.of(a))
	}
	name, err := cleanName(host)
	if err != nil || numeric(name) {
		return nil, g.deny(host, int(port), WhyBadName)
	}
	p := g.Policy()
	if why := p.Name(name); why != "" {
		// A list of ranges may hold what a name stands for, but to know that it would have to be resolved, and a question to a
		// name server is a message too.
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

// connect judges an address and connects to it, and to nothing else. host is what was asked for, for the record.
func (g *Gate) connect(ctx context.Context, network string, to netip.AddrPort, host string, names []string) (*tracked, error) {
	ctx, cut := context.WithCancel(ctx)
	f := &flow{to: to, names: names, udp: network == "udp", cut: cut}
	g.mu.Lock()
	why := f.judge(g.policy)
	// UDP does not say when it ends, so that it could take up all the room there is.
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
	why = f.judge(g.policy) // again: it may have changed meanwhile
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

// spawn runs f in a goroutine that Close waits for. It reports false, and runs nothing, when the gate is closed.
func (g *Gate) spawn(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Go(f)
	return true
}

// forget takes a flow off the list. The caller holds the lock.
func (g *Gate) forget(f *flow) {
	delete(g.flows, f)
	if f.udp {
		g.udp--
	}
}

// A flow is one connection out, or one that is being made.
type flow struct {
	to    netip.AddrPort
	names []string
	udp   bool
	cut   func() // it and what follows: under the gate's lock
	gone  bool   // it was cut
}

// judge says why a policy forbids the flow, or "".
func (f *flow) judge(p Policy) string {
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

// tracked is a connection that the gate can cut.
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

// whenCut lets f be called too, when the gate cuts the connection: a peer inside may be waited for just then.
func (t *tracked) whenCut(f func()) {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	cut := t.f.cut
	t.f.cut = func() { cut(); f() }
	if t.f.gone {
		f()
	}
}

// CloseWrite passes on that no more will be sent.
func (t *tracked) CloseWrite() error {
	if c, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return t.Close()
}

// ownAddress reports whether an address is this host's, on any of its interfaces. Behind it listen services that were never meant for a
// sandbox, ours among them, and a firewall in front of the host does not see such a connection. The kernel is asked each time, since
// addresses come and go: to one of its own it would send from that very address. Connecting UDP sends nothing.
func ownAddress(a netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return false // there is no way to it
	}
	defer c.Close()
	from, ok := c.LocalAddr().(*net.UDPAddr)
	return ok && from.AddrPort().Addr().Unmap() == a.Unmap()
}
