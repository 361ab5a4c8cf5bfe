package executor

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/execproto"
)

// Dial connects to a TCP port on the sandbox's loopback interface.
func (c *Client) Dial(ctx context.Context, port int) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.wrap(ctx, "dial", err)
	}
	if port < 1 || port > 65535 {
		return nil, c.wrap(ctx, "dial", fmt.Errorf("no such port: %d", port))
	}
	var e execproto.Enc
	e.Uint(uint64(port))
	st, stop, err := c.open(ctx, execproto.KindDial, e)
	if err != nil {
		return nil, c.wrap(ctx, "dial", err)
	}
	_, err = result(st)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		st.Reset()
		return nil, c.wrap(ctx, "dial", err)
	}
	return bridge(st, port), nil
}

// bridge makes a net.Conn of a stream. Reads go through a pipe in memory, which supports deadlines;
// writes go to the stream directly.
func bridge(st *execproto.Stream, port int) net.Conn {
	outer, inner := net.Pipe()
	go func() {
		defer inner.Close()
		io.Copy(onlyWriter{inner}, st)
	}()
	return &conn{Conn: outer, st: st, addr: addr(port)}
}

type onlyWriter struct{ io.Writer }

// A conn closes each direction separately, as TCP does: after the peer's end it can still be
// written to, and after CloseWrite still be read.
type conn struct {
	net.Conn // the pipe that is read
	st       *execproto.Stream
	addr     addr

	mu    sync.Mutex
	limit *time.Timer // of writes
}

func (c *conn) Write(p []byte) (int, error) { return c.st.Write(p) }

// CloseWrite signals the end of the data to the peer.
func (c *conn) CloseWrite() error { return c.st.Send(execproto.KindEOF, nil) }

func (c *conn) Close() error {
	c.SetWriteDeadline(time.Time{})
	c.st.Reset()
	return c.Conn.Close()
}

func (c *conn) SetDeadline(t time.Time) error {
	c.SetWriteDeadline(t)
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline limits writes. A write that exceeds it closes the connection.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit != nil {
		c.limit.Stop()
		c.limit = nil
	}
	if !t.IsZero() {
		c.limit = time.AfterFunc(time.Until(t), c.st.Reset)
	}
	return nil
}

func (c *conn) RemoteAddr() net.Addr { return c.addr }
func (c *conn) LocalAddr() net.Addr  { return c.addr }

// An addr is a port of the sandbox.
type addr int

func (a addr) Network() string { return "sandbox" }
func (a addr) String() string  { return fmt.Sprintf("127.0.0.1:%d", int(a)) }

// Listen opens a TCP port on the sandbox's loopback interface (0: any free one). The caller serves
// its connections.
func (c *Client) Listen(ctx context.Context, port int) (net.Listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.wrap(ctx, "listen", err)
	}
	if port < 0 || port > 65535 {
		return nil, c.wrap(ctx, "listen", fmt.Errorf("no such port: %d", port))
	}
	var e execproto.Enc
	e.Uint(uint64(port))
	st, stop, err := c.open(ctx, execproto.KindListen, e)
	if err != nil {
		return nil, c.wrap(ctx, "listen", err)
	}
	l := &listener{c: c, st: st, conns: make(chan *execproto.Stream, 128), done: make(chan struct{})}
	c.mu.Lock()
	c.listeners[st.ID()] = l
	c.mu.Unlock()
	d, err := result(st)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		l.port = int(d.Uint())
		err = d.Err()
	}
	if err != nil {
		l.Close()
		return nil, c.wrap(ctx, "listen", err)
	}
	go func() { // the listener ends with the sandbox's
		st.Recv()
		l.Close()
	}()
	return l, nil
}

type listener struct {
	c     *Client
	st    *execproto.Stream
	port  int
	conns chan *execproto.Stream
	once  sync.Once
	done  chan struct{}
}

// accept handles the streams that the executor opens. It runs on the session's reader, so it must
// not block.
func (c *Client) accept(st *execproto.Stream, kind byte, body []byte) {
	d := execproto.NewDec(body)
	id := d.Uint()
	c.mu.Lock()
	l := c.listeners[uint32(id)]
	c.mu.Unlock()
	if kind == execproto.KindAccepted && l != nil && d.Err() == nil {
		select {
		case l.conns <- st:
			return
		default: // the queue is full
		}
	}
	go st.Reset()
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case st := <-l.conns:
		return bridge(st, l.port), nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.c.mu.Lock()
		delete(l.c.listeners, l.st.ID())
		l.c.mu.Unlock()
		close(l.done)
		l.st.Reset()
		for {
			select {
			case st := <-l.conns:
				st.Reset()
			default:
				return
			}
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return addr(l.port) }
