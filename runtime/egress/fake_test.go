package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/evalrun/evalrun/runtime/executor"
)

func TestMain(m *testing.M) {
	executor.Main()
	goleak.VerifyTestMain(m)
}

// internet is a network in memory. Each of its names has addresses, each of its addresses a
// service; all else refuses.
type internet struct {
	mu     sync.Mutex
	names  map[string][]string
	hosts  map[string]func(net.Conn) // by address and port
	dialed []string
	wait   chan struct{} // a dial waits for it, if there is one
}

func newInternet() *internet {
	return &internet{names: map[string][]string{}, hosts: map[string]func(net.Conn){}}
}

func (n *internet) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ss, ok := n.names[strings.TrimSuffix(host, ".")]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var out []netip.Addr
	for _, s := range ss {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func (n *internet) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("the gate dials a name: %s", address)
	}
	n.mu.Lock()
	n.dialed = append(n.dialed, address)
	serve := n.hosts[address]
	if network != "tcp" {
		serve = n.hosts[network+" "+address]
	}
	wait := n.wait
	n.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if serve == nil {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	a, b := net.Pipe()
	go serve(b)
	return a, nil
}

// dials returns what was dialled since the last call.
func (n *internet) dials() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.Clone(n.dialed)
	n.dialed = nil
	return out
}

// web is a service that says which request it got.
func web(name string) func(net.Conn) {
	return func(c net.Conn) {
		l := &once{c: c, done: make(chan struct{})}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%s host=%s uri=%s body=%d proxy=%q xff=%q", name, r.Host, r.RequestURI, b,
				r.Header.Get("Proxy-Authorization"), r.Header.Get("X-Forwarded-For"))
		}), ConnState: func(_ net.Conn, st http.ConnState) {
			if st == http.StateClosed || st == http.StateHijacked {
				l.Close()
			}
		}}
		s.Serve(l)
	}
}

func echo(c net.Conn) {
	defer c.Close()
	io.Copy(c, c)
}

// once is a listener of one connection.
type once struct {
	c    net.Conn
	mu   sync.Mutex
	sent bool
	end  sync.Once
	done chan struct{}
}

func (l *once) Accept() (net.Conn, error) {
	l.mu.Lock()
	first := !l.sent
	l.sent = true
	l.mu.Unlock()
	if first {
		return l.c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}
func (l *once) Close() error   { l.end.Do(func() { close(l.done) }); return nil }
func (l *once) Addr() net.Addr { return &net.TCPAddr{} }

// inside is the machine's loopback, in memory.
type inside struct {
	conns chan net.Conn
	end   sync.Once
	done  chan struct{}
}

func newInside() *inside { return &inside{conns: make(chan net.Conn), done: make(chan struct{})} }

func (l *inside) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *inside) Close() error   { l.end.Do(func() { close(l.done) }); return nil }
func (l *inside) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: Port} }

// dial is a program's connection to the proxy.
func (l *inside) dial() net.Conn {
	a, b := net.Pipe()
	select {
	case l.conns <- b:
	case <-l.done:
		b.Close()
	}
	return a
}
