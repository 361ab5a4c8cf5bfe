// Package attach connects a person's terminal to the evalrun process that plays a run, over a unix
// socket in the run's folder. [Listen] is the side of the playing process, [Dial] that of the person.
//
// Only processes of the same user get through: the socket has mode 0600, and both sides ask the kernel
// who the other one is. The playing process also refuses its own descendants. Without isolation, agents
// are among them.
//
// A connection carries one request and its answer, as frames: a byte for the kind, four for the length
// (big-endian), and at most [maxFrame] bytes. Both sides may be slow or hang without harm to the
// other: each waits in goroutines of this connection only, and what is typed is limited by credit that
// the playing process gives back.
package attach

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Version is the version of the protocol. Both sides must be the same.
const Version = 1

// Kinds of frames.
const (
	kindRequest = 'q' // JSON of a Request: the first frame
	kindInput   = 'i' // what is typed; takes credit
	kindEOF     = 'z' // the end of the input
	kindSize    = 'w' // JSON of a sandbox.TerminalSize

	kindBegun  = 'b' // JSON of a Reply: the command is about to run
	kindOut    = 'o'
	kindErr    = 'e'
	kindCredit = 'c' // the number of bytes of input that were taken, in 4 bytes
	kindEnd    = 'x' // JSON of a Reply: the last frame
)

const (
	maxFrame = 64 << 10
	chunk    = 16 << 10
	window   = 64 << 10 // bytes of input on their way
)

// A Request is what a person asks for.
type Request struct {
	Version int    `json:"version"`
	Op      string `json:"op"` // "list" or "enter"
	Trial   string `json:"trial,omitempty"`
	Service string `json:"service,omitempty"`
	User    string `json:"user,omitempty"`
	// Args is the command; empty: a shell.
	Args     []string             `json:"args,omitempty"`
	Terminal bool                 `json:"terminal,omitempty"`
	Term     string               `json:"term,omitempty"`
	Size     sandbox.TerminalSize `json:"size"`
}

// A Reply is an answer to a request.
type Reply struct {
	// Error says why there was no command, or why it was cut off; "": the command has ended.
	Error string `json:"error,omitempty"`
	// Refused means that no command has run.
	Refused bool            `json:"refused,omitempty"`
	Code    int             `json:"code"`             // exit code of the command; -1: killed by a signal
	Signal  string          `json:"signal,omitempty"` // that has killed it
	Data    json.RawMessage `json:"data,omitempty"`   // of "list"
}

var errProtocol = errors.New("the other side does not speak this protocol")

// A wire reads and writes frames. Writes may be concurrent.
type wire struct {
	net.Conn
	mu sync.Mutex
}

func (w *wire) send(kind byte, body []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := make([]byte, 5, 5+len(body))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(body)))
	_, err := w.Conn.Write(append(b, body...))
	return err
}

func (w *wire) sendJSON(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxFrame {
		return fmt.Errorf("a request of %d bytes; at most %d are possible", len(b), maxFrame)
	}
	return w.send(kind, b)
}

// data sends p in frames.
func (w *wire) data(kind byte, p []byte) (n int, err error) {
	for len(p) > 0 {
		m := min(len(p), chunk)
		if err := w.send(kind, p[:m]); err != nil {
			return n, err
		}
		n, p = n+m, p[m:]
	}
	return n, nil
}

func (w *wire) recv() (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(w.Conn, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, errProtocol
	}
	body = make([]byte, n)
	if _, err := io.ReadFull(w.Conn, body); err != nil {
		return 0, nil, err
	}
	return head[0], body, nil
}

// SocketName is the name of the socket in a folder.
const SocketName = "shell.sock"

// within returns a name for the socket in dir that is short enough for the kernel, however long dir
// is. close releases it.
func within(dir string) (name string, close func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), SocketName), func() { d.Close() }, nil
}

// peer returns the process at the other end, as the kernel knows it.
func peer(c net.Conn) (uid, pid int, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, 0, errors.New("no unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	return credentials(raw)
}

// handshakeLimit limits how long a request may take to arrive.
const handshakeLimit = 10 * time.Second
