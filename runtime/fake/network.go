package fake

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// A network is the loopback interface of one sandbox: its open ports and connections.
type network struct {
	mu     sync.Mutex
	closed bool
	ports  map[int]*listener
	conns  map[*conn]bool
}

type listener struct {
	n      *network
	port   int
	inside bool // opened by a process, not by the host
	queue  chan net.Conn
	done   chan struct{}
	once   sync.Once
	stop   func() bool
}

// listen opens a port until ctx ends. KillAll closes the ports that were opened inside.
func (n *network) listen(ctx context.Context, port int, inside bool) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.closed:
		return nil, net.ErrClosed
	case port < 1 || port > 65535:
		return nil, fmt.Errorf("no such port: %d", port)
	case n.ports[port] != nil:
		return nil, syscall.EADDRINUSE
	}
	if n.ports == nil {
		n.ports, n.conns = map[int]*listener{}, map[*conn]bool{}
	}
	l := &listener{n: n, port: port, inside: inside, queue: make(chan net.Conn, 128), done: make(chan struct{})}
	n.ports[port] = l
	l.stop = context.AfterFunc(ctx, func() { l.Close() })
	return l, nil
}

func (n *network) dial(port int) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.ports[port]
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	a, b := net.Pipe()
	near, far := n.conn(a), n.conn(b)
	select {
	case l.queue <- far:
		return near, nil
	default:
		go func() { near.Close(); far.Close() }() // Close locks n.mu
		return nil, syscall.ECONNREFUSED
	}
}

func (n *network) conn(c net.Conn) *conn {
	w := &conn{Conn: c, n: n}
	n.conns[w] = true
	return w
}

// close closes the ports that processes have opened, and all connections. If all is set, it closes
// the host's ports too and refuses new ones.
func (n *network) close(all bool) {
	n.mu.Lock()
	n.closed = n.closed || all
	var ls []*listener
	var cs []*conn
	for _, l := range n.ports {
		if all || l.inside {
			ls = append(ls, l)
		}
	}
	for c := range n.conns {
		cs = append(cs, c)
	}
	n.mu.Unlock()
	for _, l := range ls {
		l.Close()
	}
	for _, c := range cs {
		c.abort()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.n.mu.Lock()
		delete(l.n.ports, l.port) // no connection is queued from here on
		l.n.mu.Unlock()
		l.stop()
		close(l.done)
		for {
			select {
			case c := <-l.queue:
				c.Close()
				continue
			default:
			}
			return
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: l.port} }

// A conn is one end of a net.Pipe with an unlimited send buffer, so that Write does not wait for
// the reader.
type conn struct {
	net.Conn
	n       *network
	mu      sync.Mutex
	queue   []byte
	sending bool
	closed  bool
}

func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.queue = append(c.queue, p...)
	if !c.sending && len(c.queue) > 0 {
		c.sending = true
		go c.send()
	}
	return len(p), nil
}

func (c *conn) send() {
	for {
		c.mu.Lock()
		p := c.queue
		c.queue = nil
		if len(p) == 0 {
			c.sending = false
			if c.closed {
				c.Conn.Close()
			}
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if _, err := c.Conn.Write(p); err != nil {
			c.abort()
		}
	}
}

// Close closes the connection after the data written so far has been sent.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	if !c.sending {
		c.Conn.Close()
	}
	c.mu.Unlock()
	c.forget()
	return nil
}

// abort closes the connection and drops unsent data.
func (c *conn) abort() {
	c.mu.Lock()
	c.closed, c.queue = true, nil
	c.mu.Unlock()
	c.Conn.Close()
	c.forget()
}

func (c *conn) forget() {
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
}
