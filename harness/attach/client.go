package attach

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// ErrNoSocket means that nobody listens in a folder.
var ErrNoSocket = errors.New("no process listens")

const (
	dialLimit   = 5 * time.Second  // for a process to accept a connection
	answerLimit = 20 * time.Second // and to answer a request; a command then takes as long as it likes
)

// A Client is the person's side of one request.
type Client struct {
	w      *wire
	mu     sync.Mutex
	cond   sync.Cond
	credit int
	err    error
}

// Dial connects to the process that listens in dir. pid is the process that it must be; 0: not known.
func Dial(dir string, pid int) (*Client, error) {
	path := filepath.Join(dir, SocketName)
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrNoSocket
	case err != nil:
		return nil, err
	case fi.Mode()&os.ModeSocket == 0:
		return nil, fmt.Errorf("%s is no socket", path)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("this run is played by another user (%d): only that user can enter its sandboxes", st.Uid)
	}
	name, done, err := within(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := net.DialTimeout("unix", name, dialLimit)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, ErrNoSocket
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, plain(err))
	}
	uid, other, err := peer(c)
	if err == nil && (uid != os.Geteuid() || pid != 0 && other != pid) {
		err = fmt.Errorf("%s belongs to process %d of user %d, which does not play this run", path, other, uid)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	x := &Client{w: &wire{Conn: c}, credit: window}
	x.cond.L = &x.mu
	return x, nil
}

// Close ends the connection, and so the command.
func (c *Client) Close() error {
	err := c.w.Close()
	c.fail(net.ErrClosed)
	return err
}

func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.cond.Broadcast()
}

// Do sends a request and waits for its end. begun is called when a command begins to run. An error
// means that the connection was lost, or that the other side does not answer.
func (c *Client) Do(req Request, stdout, stderr io.Writer, begun func()) (Reply, error) {
	defer c.fail(net.ErrClosed)
	req.Version = Version
	if err := c.w.sendJSON(kindRequest, req); err != nil {
		return Reply{}, err
	}
	c.w.SetReadDeadline(time.Now().Add(answerLimit))
	for {
		kind, body, err := c.w.recv()
		if err != nil {
			return Reply{}, err
		}
		c.w.SetReadDeadline(time.Time{})
		switch kind {
		case kindBegun:
			begun()
		case kindOut, kindErr:
			w := stdout
			if kind == kindErr {
				w = stderr
			}
			if _, err := w.Write(body); err != nil {
				return Reply{}, err
			}
		case kindCredit:
			if len(body) != 4 {
				return Reply{}, errProtocol
			}
			c.mu.Lock()
			c.credit += int(binary.BigEndian.Uint32(body))
			c.cond.Broadcast()
			c.mu.Unlock()
		case kindEnd:
			var r Reply
			if err := json.Unmarshal(body, &r); err != nil {
				return r, errProtocol
			}
			return r, nil
		default:
			return Reply{}, errProtocol
		}
	}
}

// Write sends what is typed. It waits while the command does not take it.
func (c *Client) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		c.mu.Lock()
		for c.credit == 0 && c.err == nil {
			c.cond.Wait()
		}
		if c.err != nil {
			defer c.mu.Unlock()
			return n, c.err
		}
		m := min(len(p), c.credit, chunk)
		c.credit -= m
		c.mu.Unlock()
		if err := c.w.send(kindInput, p[:m]); err != nil {
			return n, err
		}
		n, p = n+m, p[m:]
	}
	return n, nil
}

// CloseInput says that nothing more is typed.
func (c *Client) CloseInput() error { return c.w.send(kindEOF, nil) }

// Resize tells the terminal's new size.
func (c *Client) Resize(s sandbox.TerminalSize) error { return c.w.sendJSON(kindSize, s) }
