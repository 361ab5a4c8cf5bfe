package browsers

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/evalrun/evalrun/internal/isolate"
)

// A front is the port of a browser's own loopback on which the proxies of its contexts are. It
// listens on the whole of 127.0.0.0/8, and tells contexts apart by the address that was called:
// each knows its own only.
type front struct {
	mu   sync.Mutex
	l    net.Listener
	ways map[netip.Addr]*way
	done chan struct{} // closed when accepting has ended
}

func (f *front) serve(l net.Listener) {
	f.mu.Lock()
	f.l, f.ways, f.done = l, map[netip.Addr]*way{}, make(chan struct{})
	f.mu.Unlock()
	go func() {
		defer close(f.done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			var w *way
			if a, ok := c.LocalAddr().(*net.TCPAddr); ok {
				f.mu.Lock()
				w = f.ways[a.AddrPort().Addr().Unmap()]
				f.mu.Unlock()
			}
			if w == nil {
				c.Close()
				continue
			}
			select {
			case w.in <- c:
			case <-w.gone:
				c.Close()
			}
		}
	}()
}

func (f *front) close() {
	f.mu.Lock()
	l, done := f.l, f.done
	f.mu.Unlock()
	if l != nil {
		l.Close()
		<-done
	}
}

// listen opens the way of one context, and says by which address.
func (c *cage) listen() (net.Listener, string, error) {
	f := &c.front
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.l == nil {
		return nil, "", errors.New("the browser has no way out")
	}
	addr := loopback()
	for f.ways[addr] != nil {
		addr = loopback()
	}
	w := &way{f: f, addr: addr, in: make(chan net.Conn), gone: make(chan struct{})}
	f.ways[addr] = w
	return w, net.JoinHostPort(addr.String(), strconv.Itoa(isolate.CagePort)), nil
}

// A way is the listener of one context's proxy.
type way struct {
	f    *front
	addr netip.Addr
	in   chan net.Conn
	once sync.Once
	gone chan struct{}
}

func (w *way) Accept() (net.Conn, error) {
	select {
	case c := <-w.in:
		return c, nil
	case <-w.gone:
		return nil, net.ErrClosed
	}
}

func (w *way) Close() error {
	w.once.Do(func() {
		w.f.mu.Lock()
		delete(w.f.ways, w.addr)
		w.f.mu.Unlock()
		close(w.gone)
	})
	return nil
}

func (w *way) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.addr, isolate.CagePort))
}
