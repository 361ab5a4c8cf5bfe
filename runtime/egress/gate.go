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

// Port is the port of the proxy on the sandbox's loopback interface. It is above the range of
// ephemeral ports, so that no program gets it by chance.
const Port = 61080

// DefaultConns limits the open connections of a sandbox.
const DefaultConns = 256

// A Resolver looks up names; *net.Resolver is one. Names are in lower case, with a dot at the end.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A Dialer connects to addresses; *net.Dialer is one. It gets numeric addresses only, for "tcp" and
// "udp".
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Options of a gate. The zero value is for drivers.
type Options struct {
	Resolver Resolver // nil: this host's
	Dialer   Dialer   // nil: this host's network
	Port     int      // 0: [Port]
	Conns    int      // open connections; 0: [DefaultConns]

	// Own, if set, is called first for each host and port. If it returns ours, its connection is
	// used, whatever the policy says. host is as requested, in lower case.
	Own func(ctx context.Context, host string, port uint16) (c net.Conn, ours bool, err error)

	// Failed, if set, is called for each connection over the proxy that failed.
	Failed func(host string, port uint16, err error)

	// Link is the sandbox's network interface, if the driver has opened it. The gate owns it, also
	// if it fails. Nil: the executor's, which exists if it was started with Config.Tun.
	Link Link
}

// Env returns the environment variables of the proxy, for the sandbox's environment. direct are
// hosts to be reached without it: the sandbox's services.
func Env(direct ...string) map[string]string {
	proxy := fmt.Sprintf("http://127.0.0.1:%d", Port)
	no := strings.Join(append([]string{"localhost", "127.0.0.1", "::1"}, direct...), ",")
	m := map[string]string{"NO_PROXY": no, "no_proxy": no}
	// ALL_PROXY is the HTTP proxy too: many clients do not start with a SOCKS URL if they lack a
	// library for it.
	for _, k := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		m[k], m[strings.ToLower(k)] = proxy, proxy
	}
	return m
}

// A Gate controls the network access of one sandbox. Its methods are safe for concurrent use.
type Gate struct {
	res    Resolver
	dialer Dialer
	failed func(host string, port uint16, err error)
	own    func(ctx context.Context, host string, port uint16) (net.Conn, bool, error)
	why    string // why it is not transparent

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines of the gate
	ends   []func()       // called once by Close, before it waits

	names   nameHistory
	lookups lookups
	refused refusals

	mu     sync.Mutex
	policy Policy
	flows  map[*flow]struct{}
	udp    int // number of UDP flows
	max    int
	closed bool
}

// Attach attaches a gate to a sandbox. It listens on the sandbox's loopback interface, takes over
// its network interface if there is one, and serves both until Close or the end of the executor;
// ctx limits only the start. Before it runs commands, the sandbox should be configured for the
// proxy (see [Env]) and its name server (see [ResolvConf]). If Attach fails, it leaves nothing
// behind.
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
	if o.Link != nil { // the executor's own link ends with the executor
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

// Serve opens a gate with a proxy only, for a program on this host, such as a browser. It serves l
// until Close, and owns it, also if it fails.
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

// Transparent reports whether programs that do not use the proxy have network access too; if not,
// why is the reason, for people.
func (g *Gate) Transparent() (ok bool, why string) { return g.why == "", g.why }

// Policy returns the current policy.
func (g *Gate) Policy() Policy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.policy
}

// Rewire changes the policy. When it returns, no new connection that the policy forbids is made,
// and open ones are closed. An invalid policy changes nothing.
func (g *Gate) Rewire(_ context.Context, n sandbox.Network) error {
	p, err := Parse(n)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.policy = p
	for f := range g.flows {
		if f.check(p) != "" {
			f.gone = true
			f.cut()
		}
	}
	return nil
}

// Refused returns what was requested and not allowed, each host and port once, in order of the
// first request. Beyond a limit, a last entry has their number. It works after Close too.
func (g *Gate) Refused() []sandbox.Refusal { return g.refused.list() }

// Close closes the gate and all its connections, and waits for its goroutines. It may be called
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
