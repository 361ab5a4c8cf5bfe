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

// A channel is what we read from and write to, for as long as we live. Hosts come and go: each has
// a session of its own over the same channel.
type channel struct {
	in, out *os.File // may be one
	ended   atomic.Bool

	wmu sync.Mutex // of what is written; the lock of the leg that writes
	// What follows belongs to the one goroutine that reads.
	scan  execproto.TokenScanner
	valid func(token []byte) bool // nil: nobody can take the machine up again
	rest  []byte                  // read beyond a token
	found bool                    // a token was read, and not answered yet
}

var errResync = errors.New("another host has come")

// streams is the channel of a container: its standard input and output. They move to other numbers,
// so that nothing which is started by mistake with ours can speak on them.
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

// close ends the channel: whoever reads or writes is woken.
func (c *channel) close() {
	c.ended.Store(true)
	c.in.SetReadDeadline(time.Unix(1, 0))
	c.out.SetWriteDeadline(time.Unix(1, 0))
}

// read reads on the wire. When a token was found, it ends with errResync after the token's last
// byte.
func (c *channel) read(p []byte) (int, error) {
	if c.found {
		return 0, errResync
	}
	n, err := 0, error(nil)
	if len(c.rest) > 0 {
		n = copy(p, c.rest)
		c.rest = c.rest[n:]
	} else {
		n, err = c.in.Read(p)
	}
	if n > 0 && c.valid != nil {
		if end := c.scan.Scan(p[:n], c.valid); end >= 0 {
			c.rest = append(append([]byte(nil), p[end:n]...), c.rest...)
			c.found = true
			n = end
		}
	}
	return n, err
}

// await reads and drops until a token, or until the channel ends. The session of the host before
// has ended without one.
func (c *channel) await() bool {
	if c.valid == nil {
		return false
	}
	c.in.SetReadDeadline(time.Time{})
	buf := make([]byte, 4<<10)
	for !c.found {
		if c.ended.Load() {
			return false
		}
		if _, err := c.read(buf); err != nil && !errors.Is(err, errResync) {
			return false
		}
	}
	return true
}

// A leg is the channel as one session has it.
type leg struct {
	c      *channel
	closed atomic.Bool
	once   sync.Once
	first  []byte // written before anything else
}

// leg begins the next session's part. first is what it writes before all else.
func (c *channel) leg(first []byte) *leg {
	c.found = false
	c.in.SetReadDeadline(time.Time{})
	if c.ended.Load() { // closed just now: that deadline stays
		c.close()
	}
	l := &leg{c: c, first: first}
	if len(first) > 0 {
		// Not here: nobody may be reading what we write, and we have to go on reading.
		go l.Write(nil)
	}
	return l
}

func (l *leg) Read(p []byte) (int, error) {
	if l.closed.Load() {
		return 0, execproto.ErrClosed
	}
	return l.c.read(p)
}

func (l *leg) Write(p []byte) (int, error) {
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

func (l *leg) write(p []byte) error {
	if l.closed.Load() {
		return execproto.ErrClosed
	}
	_, err := l.c.out.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		l.c.close() // nobody will ever read again
	}
	return err
}

// Close ends the leg, and when it returns nobody writes on it any more. What was being written
// stays a torn frame.
func (l *leg) Close() error {
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
