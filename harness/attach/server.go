package attach

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Server is the playing process's side.
type Server struct {
	l     *net.UnixListener
	path  string
	serve func(ctx context.Context, c *Conn) Reply
	ctx   context.Context
	stop  context.CancelCauseFunc
	wg    sync.WaitGroup
	busy  chan struct{} // holds a token for each connection
}

// maxConns limits the connections at once.
const maxConns = 64

// ErrClosing is the cause with which the contexts of requests end at Close.
var ErrClosing = errors.New("evalrun has ended")

// Listen makes the socket in dir, which belongs to this process alone: one that is there is from a
// process that has died, and is replaced. Each request is served by serve, in a goroutine of its own.
func Listen(dir string, serve func(ctx context.Context, c *Conn) Reply) (*Server, error) {
	path := filepath.Join(dir, SocketName)
	switch fi, err := os.Lstat(path); {
	case err == nil && fi.Mode()&os.ModeSocket == 0:
		return nil, fmt.Errorf("%s is there and no socket", path)
	case err == nil:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	name, done, err := within(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	// The mode of the descriptor becomes that of the file, so that it is never more open.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var merr error
		if err := c.Control(func(fd uintptr) { merr = syscall.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return merr
	}}
	l, err := lc.Listen(context.Background(), "unix", name)
	if err != nil {
		return nil, fmt.Errorf("making a socket in %s: %w", dir, plain(err))
	}
	s := &Server{l: l.(*net.UnixListener), path: path, serve: serve, busy: make(chan struct{}, maxConns)}
	s.l.SetUnlinkOnClose(false) // by the name in /proc
	if fi, err := os.Lstat(path); err != nil || fi.Mode().Perm() != 0o600 {
		s.l.Close()
		os.Remove(path)
		return nil, fmt.Errorf("making a socket in %s: its file system keeps no modes of sockets", dir)
	}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

// plain returns the error number of a network error, whose address says nothing to people.
func plain(err error) error {
	var n syscall.Errno
	if errors.As(err, &n) {
		return n
	}
	return err
}

// Close ends all requests, and removes the socket.
func (s *Server) Close() error {
	os.Remove(s.path)
	err := s.l.Close()
	s.stop(ErrClosing)
	s.wg.Wait()
	return err
}

func (s *Server) accept() {
	for {
		c, err := s.l.Accept()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(100 * time.Millisecond) // too many open files, for example
			continue
		}
		select {
		case s.busy <- struct{}{}:
			s.wg.Go(func() {
				defer func() { <-s.busy }()
				s.one(c)
			})
		default:
			c.Close()
		}
	}
}

// one serves one connection.
func (s *Server) one(c net.Conn) {
	w := &wire{Conn: c}
	defer w.Close()
	refuse := func(format string, args ...any) {
		w.SetWriteDeadline(time.Now().Add(time.Second))
		_ = w.sendJSON(kindEnd, Reply{Error: fmt.Sprintf(format, args...), Refused: true, Code: -1})
	}
	uid, pid, err := peer(c)
	if err != nil {
		return
	}
	defer context.AfterFunc(s.ctx, func() { w.SetReadDeadline(time.Unix(1, 0)) })()
	w.SetReadDeadline(time.Now().Add(handshakeLimit))
	kind, body, err := w.recv()
	var req Request
	switch {
	case err != nil || kind != kindRequest:
		return
	case uid != os.Geteuid():
		refuse("this run is played by another user")
		return
	case below(pid, os.Getpid()):
		refuse("a process that this run has started gets into no sandbox by this way")
		return
	case json.Unmarshal(body, &req) != nil || req.Version != Version:
		refuse("the evalrun that plays this run is of another version: use that one")
		return
	}
	w.SetReadDeadline(time.Time{})
	ctx, end := context.WithCancelCause(s.ctx)
	defer end(nil)
	conn := &Conn{Request: req, w: w, resize: make(chan sandbox.TerminalSize, 1), in: &input{w: w}, PID: pid, UID: uid}
	conn.in.cond.L = &conn.in.mu
	s.wg.Go(func() { end(conn.read()) })
	// A person who does not read must not keep what has ended.
	defer context.AfterFunc(ctx, func() { w.SetWriteDeadline(time.Now().Add(lastWrite)) })()
	reply := s.serve(ctx, conn)
	w.SetWriteDeadline(time.Now().Add(lastWrite))
	_ = w.sendJSON(kindEnd, reply) // the person may be gone
	conn.in.end(io.EOF)
}

// lastWrite limits the writes after the end.
const lastWrite = 2 * time.Second

// A Conn is a request that is being served.
type Conn struct {
	Request
	UID, PID int // of the person's process, as the kernel knows it
	w        *wire
	resize   chan sandbox.TerminalSize
	in       *input
}

// ErrLeft is the cause with which a request's context ends when the person's process is gone.
var ErrLeft = errors.New("its terminal is gone")

// read takes what arrives until the connection ends, and returns why it did.
func (c *Conn) read() error {
	defer c.in.end(io.ErrUnexpectedEOF)
	for {
		kind, body, err := c.w.recv()
		if err != nil {
			return ErrLeft
		}
		switch kind {
		case kindInput:
			if !c.in.put(body) {
				return errProtocol
			}
		case kindEOF:
			c.in.end(io.EOF)
		case kindSize:
			var s sandbox.TerminalSize
			if json.Unmarshal(body, &s) != nil {
				return errProtocol
			}
			select { // only the last one matters
			case <-c.resize:
			default:
			}
			c.resize <- s // this goroutine is the only sender
		default:
			return errProtocol
		}
	}
}

// Begun tells the person that the command begins.
func (c *Conn) Begun() { _ = c.w.sendJSON(kindBegun, Reply{}) } // an error is seen by whoever reads

// Stdin is what is typed, Resize the terminal's sizes.
func (c *Conn) Stdin() io.Reader                    { return c.in }
func (c *Conn) Resize() <-chan sandbox.TerminalSize { return c.resize }
func (c *Conn) Stdout() io.Writer                   { return stream{c.w, kindOut} }
func (c *Conn) Stderr() io.Writer                   { return stream{c.w, kindErr} }

type stream struct {
	w    *wire
	kind byte
}

func (s stream) Write(p []byte) (int, error) { return s.w.data(s.kind, p) }

// An input is a bounded buffer of what is typed.
type input struct {
	w    *wire
	mu   sync.Mutex
	cond sync.Cond
	buf  []byte
	err  error
}

// put appends p. It reports whether the other side had credit for it.
func (in *input) put(p []byte) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.buf)+len(p) > window {
		return false
	}
	if in.err == nil {
		in.buf = append(in.buf, p...)
		in.cond.Broadcast()
	}
	return true
}

func (in *input) end(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		in.err = err
	}
	in.cond.Broadcast()
}

func (in *input) Read(p []byte) (int, error) {
	in.mu.Lock()
	for len(in.buf) == 0 && in.err == nil {
		in.cond.Wait()
	}
	n := copy(p, in.buf)
	in.buf = append(in.buf[:0:0], in.buf[n:]...)
	err := in.err
	in.mu.Unlock()
	if n == 0 {
		return 0, err
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(n))
	_ = in.w.send(kindCredit, b[:]) // an error is seen by whoever reads
	return n, nil
}
