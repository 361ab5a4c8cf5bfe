package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Port of a machine's loopback on which its proxy listens. It lies above the range from which Linux
// gives out ports, so that nothing inside takes it by chance.
const Port = 61080

// DefaultConns is how many connections a machine may have open at a time.
const DefaultConns = 256

// A Resolver looks names up; *net.Resolver is one. Names come in lower case, with a dot at the end.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A Dialer connects to addresses; *net.Dialer is one. It is only given an address in numbers, for
// "tcp" and "udp".
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Options of a gate. The zero value is what drivers want.
type Options struct {
	Resolver Resolver // nil: this host's
	Dialer   Dialer   // nil: this host's network
	Port     int      // 0: [Port]
	Conns    int      // open at a time; 0: [DefaultConns]

	// Own, when set, is asked first about each place: one that is ours is reached as Own reaches
	// it, whatever the policy says. host is as it was asked for, in lower case.
	Own func(ctx context.Context, host string, port uint16) (c net.Conn, ours bool, err error)

	// Failed, when set, is told of each connection by way of the proxy that could not be made, and
	// why.
	Failed func(host string, port uint16, err error)

	// Link is the machine's network interface, if the driver has opened it itself. The gate owns
	// it, also on error. Nil: the executor is asked for its own, which it has when it was started
	// with Config.Tun.
	Link Link
}

// Env is what tells programs of the proxy, to be put into a machine's environment before it starts.
// direct are hosts that are reached without it: a machine's services.
func Env(direct ...string) map[string]string {
	proxy := fmt.Sprintf("http://127.0.0.1:%d", Port)
	no := strings.Join(append([]string{"localhost", "127.0.0.1", "::1"}, direct...), ",")
	m := map[string]string{"NO_PROXY": no, "no_proxy": no}
	// ALL_PROXY is the HTTP one too: many clients refuse to start over a SOCKS URL for which they
	// lack a library.
	for _, k := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		m[k], m[strings.ToLower(k)] = proxy, proxy
	}
	return m
}

// A Gate is the way out of one machine. Its methods may be called from several goroutines.
type Gate struct {
	res    Resolver
	dialer Dialer
	failed func(host string, port uint16, err error)
	own    func(ctx context.Context, host string, port uint16) (net.Conn, bool, error)
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

// Attach hangs a gate on a machine. It listens on the machine's loopback, takes the machine's
// network interface where there is one, and serves both until Close or the end of the executor; ctx
// bounds the start only. The machine should know of the proxy (see [Env]) and its name server (see
// [ResolvConf]) before it runs commands. On error nothing is left behind.
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
	if o.Link != nil { // what the executor itself carries ends with it anyway
		g.wg.Go(func() {
			select {
			case <-c.Done():
				link.Close()
			case <-g.ctx.Done():
			}
		})
	}
	return g, nil
}

// Serve opens a gate that is a proxy only, for a program on this host: a browser, say. It serves l,
// which it owns from now on, also on error, until Close.
func Serve(l net.Listener, n sandbox.Network, o Options) (*Gate, error) {
	p, err := Parse(n)
	if err != nil {
		l.Close()
		return nil, err
	}
	g := newGate(p, o)
	g.why = "a program that knows the proxy"
	g.serveProxy(l)
	return g, nil
}

func newGate(p Policy, o Options) *Gate {
	g := &Gate{res: o.Resolver, dialer: o.Dialer, own: o.Own, failed: o.Failed, policy: p, max: o.Conns,
		flows: map[*flow]struct{}{}}
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

// Transparent reports whether programs that know no proxy reach the network, too; if not, why says
// so for people.
func (g *Gate) Transparent() (ok bool, why string) { return g.why == "", g.why }

// Policy is the one that is in force.
func (g *Gate) Policy() Policy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.policy
}

// Rewire puts another policy in force. When it returns, nothing new is let through that it forbids,
// and what was open of it is cut. A policy that is wrong changes nothing.
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

// Refused lists what was asked for and not let through, each host and port once, in the order of
// their first time; what is past a bound is counted in a last entry. It works after Close.
func (g *Gate) Refused() []sandbox.Refusal { return g.refused.list() }

// Close ends the gate and all its connections, and waits for its goroutines. It may be called
// again.
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
