package executor

import (
	"context"
	"fmt"
	"sync"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An Entry is the ENTRYPOINT of a sandbox (or a service's own command) under its supervisor.
// KillAll does not kill it, Stats does not count it, and the sandbox goes on when it ends.
type Entry struct {
	logs logs
	end  context.CancelFunc
	done chan struct{}
	exit sandbox.Exit
	err  error
}

// entryID is the command ID of the ENTRYPOINT, by which the next host finds it.
const entryID = "evalrun entry"

// Start starts the sandbox's ENTRYPOINT, of which there is one, and does not wait for it. Its
// output goes to cmd.Stdout and cmd.Stderr if they are set, and is always kept for Logs. If it
// cannot be started, it ends with code 127 or 126 and the reason is in its logs. After [Reattach],
// Start returns the ENTRYPOINT that the first host has started, with its output from now on.
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
		e.exit, e.err = c.exec(ctx, cmd, execKind{entry: true})
	}()
	return e
}

// Done is closed when the ENTRYPOINT's own process or the sandbox has ended.
func (e *Entry) Done() <-chan struct{} { return e.done }

// Exit waits for the end of the ENTRYPOINT and returns its result.
func (e *Entry) Exit() (sandbox.Exit, error) {
	<-e.done
	return e.exit, e.err
}

// Kill kills the ENTRYPOINT with all its descendants and waits until they are gone.
func (e *Entry) Kill() {
	e.end()
	<-e.done
}

// Logs returns the first and the last part of its output so far. A line between them says how many
// bytes were left out.
func (e *Entry) Logs() []byte { return e.logs.bytes() }

// tee writes to the logs and to w, which may be nil and may fail.
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

// logs keeps the first and the last part of what is written to it.
type logs struct {
	mu   sync.Mutex
	head []byte
	tail []byte // a ring buffer, once it is full
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
