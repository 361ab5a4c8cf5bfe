package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A machine is one container: main, or a service.
type machine struct {
	b     *box
	name  string // of the container
	key   []byte // with which another process of ours can reattach
	ch    *channel
	c     *executor.Client
	args  []string        // of ENTRYPOINT
	entry *executor.Entry // nil: no ENTRYPOINT

	written atomic.Int64 // bytes on the engine's disk at the last check; -1: not checked

	mu      sync.Mutex
	asked   bool  // the engine was given time for the container's end already
	goneErr error // why it is gone, once that is definite
}

// ID returns the container's name, which is the sandbox's ID for main.
func (m *machine) ID() string { return m.name }

// Executor is for [executor.Of].
func (m *machine) Executor() *executor.Client { return m.c }

// Exec runs a command. If the memory limit has killed even process 1, that is the result of the
// command, not a failure of the infrastructure.
func (m *machine) Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	x, err := m.c.Exec(ctx, cmd)
	if errors.Is(err, sandbox.ErrSandboxOOM) && ctx.Err() == nil {
		return sandbox.Exit{Code: -1, Signal: "SIGKILL", OOM: true}, nil
	}
	return x, err
}

// Terminal runs a command on a terminal.
func (m *machine) Terminal(ctx context.Context, t sandbox.Terminal) (sandbox.Exit, error) {
	return m.c.Terminal(ctx, t)
}

// Shell makes one call of a persistent shell.
func (m *machine) Shell(ctx context.Context, call sandbox.ShellCall) (sandbox.ShellResult, error) {
	return m.c.Shell(ctx, call)
}

func (m *machine) Put(ctx context.Context, dir string, src fs.FS) error {
	return m.c.Put(ctx, dir, src)
}
func (m *machine) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return m.c.Get(ctx, name)
}
func (m *machine) FileOp(ctx context.Context, op sandbox.FileOp) (sandbox.FileResult, error) {
	return m.c.FileOp(ctx, op)
}
func (m *machine) KillAll(ctx context.Context) error { return m.c.KillAll(ctx) }
func (m *machine) Dial(ctx context.Context, port int) (net.Conn, error) {
	return m.c.Dial(ctx, port)
}
func (m *machine) Listen(ctx context.Context, port int) (net.Listener, error) {
	return m.c.Listen(ctx, port)
}

// Stats returns what the executor sees from inside the container's control group, with the engine's
// value for the disk.
func (m *machine) Stats(ctx context.Context) (sandbox.Stats, error) {
	st, err := m.c.Stats(ctx)
	st.Disk = nil
	if n := m.written.Load(); n >= 0 {
		st.Disk = &n
	}
	return st, err
}

// Logs returns the output of ENTRYPOINT.
func (m *machine) Logs() []byte {
	if m.entry == nil {
		return nil
	}
	return m.entry.Logs()
}

const (
	// callLimit limits one call of the engine, however busy it is.
	callLimit = 2 * time.Minute
	// goneLimit limits the engine's answer what became of a container; endLimit is how long a
	// container without its streams may take to end.
	goneLimit = 10 * time.Second
	endLimit  = 3 * time.Second
)

// gone returns why the executor no longer responds. It asks the engine, since a broken connection
// alone proves nothing.
func (m *machine) gone() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.goneErr != nil {
		return m.goneErr
	}
	if m.b.isClosed() {
		return fmt.Errorf("%w: it was closed", sandbox.ErrGone)
	}
	ctx, cancel := context.WithTimeout(context.Background(), goneLimit)
	defer cancel()
	definite, why := m.ask(ctx)
	if said, _, _ := strings.Cut(strings.TrimSpace(m.ch.errs.String()), "\n"); said != "" {
		why = fmt.Errorf("%w: %.300s", why, said)
	}
	if definite {
		m.goneErr = why
	}
	return why
}

// hasEnded reports whether a container has ended, even if it was started again since.
func hasEnded(s *container.State) bool {
	t, err := time.Parse(time.RFC3339Nano, s.FinishedAt)
	return err == nil && !t.IsZero()
}

// ask waits for the container's end, which comes shortly after the end of its streams, and reads
// what the engine knows of it.
func (m *machine) ask(ctx context.Context) (definite bool, why error) {
	cli, err := m.b.d.engine.api(ctx)
	if err != nil {
		return false, err
	}
	if !m.asked { // later calls do not wait: the container goes on, and only the connection is lost
		m.asked = true
		wait, cancel := context.WithTimeout(ctx, endLimit)
		defer cancel()
		w := cli.ContainerWait(wait, m.name, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-w.Result:
		case <-w.Error:
		}
	}
	c, err := inspect(ctx, cli, m.name)
	switch {
	case m.b.isClosed():
		return true, fmt.Errorf("%w: it was closed", sandbox.ErrGone)
	case missing(err):
		return true, fmt.Errorf("%w: somebody has removed its container", sandbox.ErrGone)
	case err != nil && ctx.Err() != nil:
		return false, errNoAnswer
	case err != nil:
		m.asked = false
		return false, m.b.d.engine.explain(err)
	case c.State.Running && !hasEnded(c.State):
		return false, errors.New("the connection to it has broken, and it still runs: take it up again by its ID")
	}
	s := c.State
	if s.Running {
		return true, fmt.Errorf("%w: somebody has started its container again", sandbox.ErrGone)
	}
	if s.OOMKilled && s.ExitCode == 137 {
		return true, sandbox.ErrSandboxOOM
	}
	how := fmt.Sprintf("exit code %d", s.ExitCode)
	if s.ExitCode == 137 {
		how = "killed from outside"
	}
	if s.Error != "" {
		how += ": " + s.Error
	}
	return true, fmt.Errorf("%w: its executor has ended (%s)", sandbox.ErrGone, how)
}
