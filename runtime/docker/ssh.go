package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// sshDialer connects to an engine over ssh, as the docker command does: the remote machine runs
// "docker system dial-stdio", and that command's streams are the connection. Keys and known hosts
// are configured for ssh, which must not prompt.
func sshDialer(host string) (func(ctx context.Context, network, addr string) (net.Conn, error), error) {
	u, err := url.Parse(host)
	if err != nil || u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-") || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("write it as ssh://user@host:port")
	}
	args := []string{"-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-T"}
	if name := u.User.Username(); name != "" {
		args = append(args, "-l", name)
	}
	if p := u.Port(); p != "" {
		args = append(args, "-p", p)
	}
	args = append(args, "--", u.Hostname(), "docker system dial-stdio")
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		return startConn(exec.Command("ssh", args...), u.Hostname())
	}, nil
}

// startConn starts a command and returns its streams as a connection.
func startConn(cmd *exec.Cmd, name string) (net.Conn, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c := &commandConn{cmd: cmd, in: in, out: out, name: name, done: make(chan struct{})}
	cmd.Stderr = &c.errs
	if err := cmd.Start(); err != nil {
		return nil, &net.OpError{Op: "dial", Net: "ssh", Addr: c.RemoteAddr(), Err: err}
	}
	return c, nil
}

// A commandConn is a connection over the streams of a command. It has no deadlines, which the
// client does not use.
type commandConn struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	errs tail
	name string
	once sync.Once
	done chan struct{}
}

func (c *commandConn) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	if err == io.EOF {
		if said := strings.TrimSpace(c.errs.String()); said != "" {
			err = &net.OpError{Op: "read", Net: "ssh", Addr: c.RemoteAddr(), Err: errors.New(said)}
		}
	}
	return n, err
}

func (c *commandConn) Write(p []byte) (int, error) { return c.in.Write(p) }
func (c *commandConn) CloseWrite() error           { return c.in.Close() }

// Close kills the command and waits for it, to leave no zombie.
func (c *commandConn) Close() error {
	c.once.Do(func() {
		defer close(c.done)
		c.in.Close()
		timer := time.AfterFunc(2*time.Second, func() { c.cmd.Process.Kill() })
		defer timer.Stop()
		c.out.Close()
		c.cmd.Wait()
	})
	<-c.done
	return nil
}

func (c *commandConn) LocalAddr() net.Addr              { return sshAddr("") }
func (c *commandConn) RemoteAddr() net.Addr             { return sshAddr(c.name) }
func (c *commandConn) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (c *commandConn) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (c *commandConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

type sshAddr string

func (a sshAddr) Network() string { return "ssh" }
func (a sshAddr) String() string  { return string(a) }

// A tail keeps the last bytes written to it. It is safe for concurrent use.
type tail struct {
	max int // maximum number of bytes; 0: tailSize
	mu  sync.Mutex
	b   []byte
	n   int64 // bytes written in all
}

const (
	tailSize  = 8 << 10
	stackSize = 256 << 10 // of an executor's stacks
)

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.n += int64(len(p))
	if n := len(t.b) - cmp.Or(t.max, tailSize); n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// since returns what was written after the first n bytes, as far as it is kept.
func (t *tail) since(n int64) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b[len(t.b)-int(min(t.n-n, int64(len(t.b)))):])
}

func (t *tail) written() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}
