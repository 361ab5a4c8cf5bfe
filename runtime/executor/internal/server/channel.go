package server

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A channel is the byte stream to the host, for the life of the executor. Hosts may follow one
// another; each has a session of its own, over the same stream or over a connection of its own.
type channel struct {
	ended atomic.Bool

	mu      sync.Mutex    // guards changes of in and out, which the serving goroutine makes, and arrived
	in, out *os.File      // may be one
	arrived *host         // has its own connection and is not served yet
	come    chan struct{} // signals arrived and ended; nil: hosts have no connections of their own

	wmu sync.Mutex // guards writes; held by the hostConn that writes
	// The fields below are used by the reading goroutine only.
	scan  execproto.TokenScanner
	admit func(token []byte) (host, bool) // nil: no host can reattach over the stream
	rest  []byte                          // read after a token
	found *host                           // its token was read and is not answered yet
}

var errResync = errors.New("another host has come")

// streams returns the channel of a container: its standard input and output. It moves them to other
// descriptors, so that no process that inherits ours by mistake can use them.
func streams() (*channel, error) {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	var fs [2]*os.File
	for i := range fs {
		fd, err := unix.FcntlInt(uintptr(i), unix.F_DUPFD_CLOEXEC, 4)
		if err != nil {
			return nil, err
		}
		if err := unix.Dup3(null, i, 0); err != nil {
			return nil, err
		}
		unix.SetNonblock(fd, true)
		fs[i] = os.NewFile(uintptr(fd), "channel")
	}
	if null > 2 {
		unix.Close(null)
	}
	return &channel{in: fs[0], out: fs[1]}, nil
}

// close closes the channel and unblocks its reads and writes.
func (c *channel) close() {
	c.ended.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in.SetReadDeadline(time.Unix(1, 0))
	c.out.SetWriteDeadline(time.Unix(1, 0))
	c.signal()
}

func (c *channel) signal() {
	select {
	case c.come <- struct{}{}:
	default:
	}
}

// arrive ends the session of the present host in favor of a new one with its own connection.
func (c *channel) arrive(h host) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.arrived != nil {
		c.arrived.conn.Close()
	}
	c.arrived = &h
	c.in.Close()
	c.signal()
}

// read reads from the channel. After a token it returns errResync.
func (c *channel) read(p []byte) (int, error) {
	if c.found != nil {
		return 0, errResync
	}
	n, err := 0, error(nil)
	if len(c.rest) > 0 {
		n = copy(p, c.rest)
		c.rest = c.rest[n:]
	} else {
		n, err = c.in.Read(p)
	}
	if n > 0 && c.admit != nil {
		var h host
		valid := func(token []byte) (ok bool) { h, ok = c.admit(token); return ok }
		if end := c.scan.Scan(p[:n], valid); end >= 0 {
			c.rest = append(append([]byte(nil), p[end:n]...), c.rest...)
			c.found = &h
			n = end
		}
	}
	return n, err
}

// next waits for the next host, after the session of the previous one has ended. It reports false at
// the end of the channel.
func (c *channel) next() (host, bool) {
	if c.come != nil {
		return c.accepted()
	}
	if c.admit == nil {
		return host{}, false
	}
	if c.found == nil {
		c.in.SetReadDeadline(time.Time{})
	}
	buf := make([]byte, 4<<10)
	for c.found == nil { // what comes before its token is the dead host's
		if c.ended.Load() {
			return host{}, false
		}
		if _, err := c.read(buf); err != nil && !errors.Is(err, errResync) {
			return host{}, false
		}
	}
	return *c.found, true
}

// accepted waits for a host with a connection of its own, which becomes the channel.
func (c *channel) accepted() (host, bool) {
	c.mu.Lock()
	c.in.Close() // if the previous host is alive, it has lost the sandbox
	c.mu.Unlock()
	for !c.ended.Load() {
		c.mu.Lock()
		h := c.arrived
		if c.arrived = nil; h != nil {
			c.in, c.out = h.conn, h.conn
		}
		c.mu.Unlock()
		if h != nil {
			return *h, true
		}
		<-c.come
	}
	return host{}, false
}

// A hostConn is the channel as the session of one host uses it.
type hostConn struct {
	c      *channel
	closed atomic.Bool
	once   sync.Once
	first  []byte // written before anything else
}

// hostConn returns the connection of the next session, which writes first before anything else.
func (c *channel) hostConn(first []byte) *hostConn {
	c.found = nil
	c.in.SetReadDeadline(time.Time{})
	if c.ended.Load() { // closed just now: keep that deadline
		c.close()
	}
	l := &hostConn{c: c, first: first}
	if len(first) > 0 {
		// In a goroutine, because the host may not be reading, and we have to go on reading.
		go l.Write(nil)
	}
	return l
}

func (l *hostConn) Read(p []byte) (int, error) {
	if l.closed.Load() {
		return 0, execproto.ErrClosed
	}
	return l.c.read(p)
}

func (l *hostConn) Write(p []byte) (int, error) {
	l.c.wmu.Lock()
	defer l.c.wmu.Unlock()
	if len(l.first) > 0 {
		if err := l.write(l.first); err != nil {
			return 0, err
		}
		l.first = nil
	}
	if len(p) == 0 {
		return 0, nil
	}
	if err := l.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (l *hostConn) write(p []byte) error {
	if l.closed.Load() {
		return execproto.ErrClosed
	}
	_, err := l.c.out.Write(p)
	if errors.Is(err, syscall.EPIPE) && l.c.come == nil {
		l.c.close() // the host no longer reads, and no other can come
	}
	return err
}

// Close closes the connection. When it returns, nothing more is written on it; a frame that was
// being written may be incomplete.
func (l *hostConn) Close() error {
	l.once.Do(func() {
		l.closed.Store(true)
		l.c.in.SetReadDeadline(time.Unix(1, 0))
		l.c.out.SetWriteDeadline(time.Unix(1, 0))
		l.c.wmu.Lock()
		defer l.c.wmu.Unlock()
		if !l.c.ended.Load() {
			l.c.out.SetWriteDeadline(time.Time{})
		}
	})
	return nil
}
