package browsers

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/evalrun/evalrun/internal/isolate"
)

// A proxyListener accepts connections at [isolate.ProxyPort] of a browser's loopback interface. It
// listens on all of 127.0.0.0/8. The destination address tells which context's proxy a connection
// is for; each context knows only its own address.
type proxyListener struct {
	mu       sync.Mutex
	l        net.Listener
	contexts map[netip.Addr]*contextListener
	done     chan struct{} // closed when the accept loop has ended
}

func (f *proxyListener) serve(l net.Listener) {
	f.mu.Lock()
	f.l, f.contexts, f.done = l, map[netip.Addr]*contextListener{}, make(chan struct{})
	f.mu.Unlock()
	go func() {
		defer close(f.done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var cl *contextListener
			if a, ok := c.LocalAddr().(*net.TCPAddr); ok {
				f.mu.Lock()
				cl = f.contexts[a.AddrPort().Addr().Unmap()]
				f.mu.Unlock()
			}
			if cl == nil {
				c.Close()
				continue
			}
			select {
			case cl.conns <- c:
			case <-cl.closed:
				c.Close()
			}
		}
	}()
}

func (f *proxyListener) close() {
	f.mu.Lock()
	l, done := f.l, f.done
	f.mu.Unlock()
	if l != nil {
		l.Close()
		<-done
	}
}

// listen opens the listener of one context's proxy, and returns its address.
func (c *confinement) listen() (net.Listener, string, error) {
	f := &c.proxies
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.l == nil {
		return nil, "", errors.New("the browser's proxy socket is not open")
	}
	addr := randomLoopback()
	for f.contexts[addr] != nil {
		addr = randomLoopback()
	}
	cl := &contextListener{proxies: f, addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
	f.contexts[addr] = cl
	return cl, net.JoinHostPort(addr.String(), strconv.Itoa(isolate.ProxyPort)), nil
}

// A contextListener is the listener of one context's proxy.
type contextListener struct {
	proxies *proxyListener
	addr    netip.Addr
	conns   chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (cl *contextListener) Accept() (net.Conn, error) {
	select {
	case c := <-cl.conns:
		return c, nil
	case <-cl.closed:
		return nil, net.ErrClosed
	}
}

func (cl *contextListener) Close() error {
	cl.once.Do(func() {
		cl.proxies.mu.Lock()
		delete(cl.proxies.contexts, cl.addr)
		cl.proxies.mu.Unlock()
		close(cl.closed)
	})
	return nil
}

func (cl *contextListener) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(cl.addr, isolate.ProxyPort))
}
