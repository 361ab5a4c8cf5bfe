package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The host enforces every limit itself. When the context of a call ends, or a command's timeout has
// passed, the executor has to answer a ping. An executor that does not answer is hung, whatever the
// cause: its sandbox is killed, and all calls fail with an error that is sandbox.ErrHung and
// includes its stacks.
//
// All of it takes less than 10 s after the limit, which is the time that the harness waits before
// it abandons a call.
const (
	// grace is the time to answer a ping. On a machine that is overloaded twentyfold, an answer
	// takes about a second.
	grace = 6 * time.Second
	// stacksLimit limits Options.Hung.
	stacksLimit = 2 * time.Second
	// startLimit limits the setup of a new sandbox.
	startLimit = time.Minute
)

var errNoAnswer = errors.New("its executor does not answer")

// A hung error is returned by calls on a sandbox whose executor was declared hung.
type hung struct {
	why    string
	detail string
	done   chan struct{} // closed when detail is known
}

func (h *hung) Error() string { return sandbox.ErrHung.Error() + " (" + h.why + ")" }
func (h *hung) Unwrap() error { return sandbox.ErrHung }

// hungError returns the hung error, or nil if the executor was not declared hung.
func (c *Client) hungError() *hung {
	c.mu.Lock()
	h := c.hung
	c.mu.Unlock()
	if h != nil {
		<-h.done
	}
	return h
}

// checkAlive pings the executor, and declares it hung if it does not answer in time.
func (c *Client) checkAlive() bool {
	stop := make(chan struct{})
	timer := time.AfterFunc(c.grace, func() { close(stop) })
	defer timer.Stop()
	pong := make(chan error, 1)
	// In a goroutine, because the write blocks while the executor does not read.
	go func() { pong <- c.s.Ping(stop) }()
	select {
	case err := <-pong:
		if err == nil {
			return true
		}
	case <-stop:
	}
	if c.s.Err() == nil {
		c.declareHung()
	}
	return false
}

// declareHung declares the executor hung and kills its sandbox.
func (c *Client) declareHung() {
	c.once.Do(func() {
		h := &hung{why: fmt.Sprintf("no answer to a ping for %v", c.grace), done: make(chan struct{})}
		c.mu.Lock()
		c.hung = h // first, so that the end of the channel is not taken for something else
		c.mu.Unlock()
		if c.stuck != nil {
			ctx, cancel := context.WithTimeout(context.Background(), stacksLimit)
			h.detail = c.stuck(ctx)
			cancel()
		}
		close(h.done)
		c.s.Abort(sandbox.ErrHung)
	})
}

// checkAfter pings the executor when ctx ends or limit has passed (0: no limit), until stop is
// called.
func (c *Client) checkAfter(ctx context.Context, limit time.Duration) (stop func()) {
	check := func() { c.checkAlive() }
	after := context.AfterFunc(ctx, check)
	if limit <= 0 {
		return func() { after() }
	}
	timer := time.AfterFunc(limit, check)
	return func() {
		after()
		timer.Stop()
	}
}

// open opens a stream that is interrupted when ctx ends: at once if the executor answers a ping,
// else when it is declared hung. The caller calls stop when it no longer needs the stream; stop
// reports whether ctx had not ended before.
func (c *Client) open(ctx context.Context, kind byte, body []byte) (st *execproto.Stream, stop func() bool, err error) {
	opened := make(chan struct{})
	stop = context.AfterFunc(ctx, func() {
		for c.checkAlive() {
			select {
			case <-opened:
				if st != nil {
					st.Interrupt(context.Cause(ctx))
				}
				return
			case <-time.After(c.grace): // the write blocks
			}
		}
	})
	st, err = c.s.Open(kind, body)
	close(opened)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return st, stop, nil
}

// Threads describes the threads of an executor, of which pid is the number here, by what this
// machine's kernel says of them: whether they run, wait or are stopped, where, and which signals
// are pending. It is for [Options].Hung. What may not be read is left empty.
func Threads(pid int) string {
	var s strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for i, t := range tasks {
		if i == 64 {
			fmt.Fprintf(&s, "and %d more threads\n", len(tasks)-i)
			break
		}
		read := func(name string) string {
			data, _ := os.ReadFile(filepath.Join(t, name))
			return strings.TrimSpace(string(data))
		}
		stat := read("stat")
		if i := strings.LastIndexByte(stat, ')'); i >= 0 {
			stat = stat[i+1:]
		}
		state, user, system := "?", "?", "?"
		if f := strings.Fields(stat); len(f) > 12 {
			state, user, system = f[0], f[11], f[12]
		}
		fmt.Fprintf(&s, "thread %s: state %s, user %s and system %s ticks", filepath.Base(t), state, user, system)
		for line := range strings.Lines(read("status")) {
			if k, v, _ := strings.Cut(line, ":"); k == "SigPnd" || k == "ShdPnd" || k == "SigBlk" {
				fmt.Fprintf(&s, ", %s %s", k, strings.TrimSpace(v))
			}
		}
		for _, name := range []string{"wchan", "syscall", "stack"} {
			if text := read(name); text != "" {
				fmt.Fprintf(&s, ", %s %s", name, strings.ReplaceAll(text, "\n", " "))
			}
		}
		s.WriteByte('\n')
	}
	return s.String()
}
