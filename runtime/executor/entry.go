package executor

import (
	"context"
	"fmt"
	"sync"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An Entry is a machine's ENTRYPOINT (or a service's own command) under its supervisor. KillAll
// leaves it alone, Stats does not count it, and its end is not the machine's.
type Entry struct {
	logs logs
	end  context.CancelFunc
	done chan struct{}
	exit sandbox.Exit
	err  error
}

// entryID is the name by which the next host asks for it.
const entryID = "evalrun entry"

// Start starts the machine's ENTRYPOINT, of which there is one; it does not wait for it. What it
// prints goes to cmd.Stdout and cmd.Stderr if they are set, and is kept for Logs in any case. One
// that cannot be started ends with code 127 or 126 and says why in its logs. On a machine that was
// taken up again ([Reattach]), Start gives the entry that its first host has started, with what it
// prints from now on.
func (c *Client) Start(cmd sandbox.Command) *Entry {
	ctx, cancel := context.WithCancel(context.Background())
	e := &Entry{end: cancel, done: make(chan struct{})}
	cmd.ID, cmd.Limit, cmd.Timeout = entryID, 0, 0
	cmd.Stdout = tee{&e.logs, cmd.Stdout}
	if cmd.Stderr != nil {
		cmd.Stderr = tee{&e.logs, cmd.Stderr}
	}
	go func() {
		defer close(e.done)
		defer cancel()
		e.exit, e.err = c.exec(ctx, cmd, true)
	}()
	return e
}

// Done is closed when the entry's own process has ended, or the machine has.
func (e *Entry) Done() <-chan struct{} { return e.done }

// Exit waits for the entry's end and returns what became of it.
func (e *Entry) Exit() (sandbox.Exit, error) {
	<-e.done
	return e.exit, e.err
}

// Kill ends the entry with all that came of it, and returns when that has happened.
func (e *Entry) Kill() {
	e.end()
	<-e.done
}

// Logs is what it has printed so far: the first and the last of it, with a line between them that
// says how much is left out.
func (e *Entry) Logs() []byte { return e.logs.bytes() }

// tee writes to the logs and to a writer that may be nil and may fail.
type tee struct {
	l *logs
	w interface{ Write([]byte) (int, error) }
}

func (t tee) Write(p []byte) (int, error) {
	t.l.Write(p)
	if t.w != nil {
		t.w.Write(p)
	}
	return len(p), nil
}

const (
	logsHead = 64 << 10
	logsTail = 192 << 10
)

// logs keeps the beginning and the end of what is written to it.
type logs struct {
	mu   sync.Mutex
	head []byte
	tail []byte // a ring, once it has grown to its size
	at   int
	cut  int64
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := len(p)
	n := min(logsHead-len(l.head), len(p))
	l.head, p = append(l.head, p[:n]...), p[n:]
	n = min(logsTail-len(l.tail), len(p))
	l.tail, p = append(l.tail, p[:n]...), p[n:]
	l.cut += int64(len(p))
	if len(p) > logsTail {
		p = p[len(p)-logsTail:]
	}
	for len(p) > 0 {
		n := copy(l.tail[l.at:], p)
		l.at = (l.at + n) % logsTail
		p = p[n:]
	}
	return all, nil
}

func (l *logs) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := append([]byte(nil), l.head...)
	if l.cut > 0 {
		b = fmt.Appendf(b, "\n[... %d bytes left out ...]\n", l.cut)
	}
	return append(append(b, l.tail[l.at:]...), l.tail[:l.at]...)
}
