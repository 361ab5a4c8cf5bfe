package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/internal/isolate"
	"github.com/evalrun/evalrun/runtime/executor"
)

// initBinary is the executor as a sealed file in memory. Nobody can change it, it needs no disk,
// and all sandboxes share its pages. It is the embedded slim build, or this program.
var initBinary = sync.OnceValues(func() (*os.File, error) {
	b, err := executor.Program(runtime.GOARCH)
	if useSelf {
		b, err = executor.Self()
	}
	if err != nil {
		return nil, err
	}
	return isolate.MemoryFile(b)
})

// useSelf makes tests use the test binary even if there is a slim build.
var useSelf = os.Getenv("EVALRUN_EXECUTOR") == "self"

// A spawner is our side of isolate.Spawn.
type spawner struct {
	conn *net.UnixConn
	cmd  *exec.Cmd
	errs *tailBuffer
	asks chan struct{} // held while waiting for a process's stacks, since all processes write to errs
	done chan struct{}

	mu    sync.Mutex
	next  uint64
	procs map[uint64]*process
	dead  bool
}

// A process was started by the spawner, or found; see findProcess.
type process struct {
	sp      *spawner
	id      uint64
	started chan error
	pid     int
	ended   chan struct{} // closed when it is reaped, and its paths are removed
	how     string
	fd      *os.File // of one that was found: its pidfd. ended says that it has ended, and no more
}

func newSpawner() (*spawner, error) {
	bin, err := initBinary()
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket pair: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "spawner")
	defer theirs.Close()
	ours := os.NewFile(uintptr(fds[0]), "spawner")
	c, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return nil, err
	}
	s := &spawner{conn: c.(*net.UnixConn), procs: map[uint64]*process{}, errs: &tailBuffer{},
		asks: make(chan struct{}, 1), done: make(chan struct{})}
	s.cmd = &exec.Cmd{
		Path: fmt.Sprintf("/proc/self/fd/%d", bin.Fd()),
		Args: []string{isolate.Name, "spawn"},
		Env:  []string{"GOMAXPROCS=1", "GOTRACEBACK=single"},
		Dir:  "/", ExtraFiles: []*os.File{theirs},
		Stderr: s.errs, // of the executors too: they print only when they panic
		// Signals of the terminal are for evalrun, which decides what happens to its sandboxes. A
		// session of its own also keeps it from whoever kills the whole session of an evalrun.
		SysProcAttr: &unix.SysProcAttr{Setsid: true},
		WaitDelay:   time.Second,
	}
	if err := s.cmd.Start(); err != nil {
		c.Close()
		return nil, fmt.Errorf("starting the executor: %w", err)
	}
	go s.read()
	return s, nil
}

func (s *spawner) read() {
	b := make([]byte, 4096)
	for {
		n, err := s.conn.Read(b)
		if err != nil || n == 0 {
			break
		}
		d := execproto.NewDec(b[:n])
		op, id := d.Uint(), d.Uint()
		s.mu.Lock()
		p := s.procs[id]
		if op == isolate.OpEnded {
			delete(s.procs, id)
		}
		s.mu.Unlock()
		if p == nil {
			continue
		}
		switch op {
		case isolate.OpStarted:
			p.pid = int(d.Uint())
			if msg := d.String(); msg != "" {
				s.mu.Lock()
				delete(s.procs, id)
				s.mu.Unlock()
				p.started <- errors.New(msg)
				close(p.ended)
				continue
			}
			p.started <- nil
		case isolate.OpEnded:
			p.how = d.String()
			close(p.ended)
		}
	}
	s.conn.Close()
	s.cmd.Wait()
	s.mu.Lock()
	s.dead = true
	procs := s.procs
	s.procs = nil
	s.mu.Unlock()
	for _, p := range procs {
		select {
		case p.started <- errors.New("the spawner has ended" + s.errs.suffix()):
		default:
		}
		close(p.ended)
	}
	close(s.done)
}

// start starts a process and waits for its PID. The caller keeps the descriptors. If ctx ends
// first, the process may be started all the same, and the caller has to kill it.
func (s *spawner) start(ctx context.Context, req isolate.Start, fds []int) (*process, error) {
	s.mu.Lock()
	if s.dead {
		s.mu.Unlock()
		return nil, errors.New("the spawner has ended")
	}
	s.next++
	req.ID = s.next
	p := &process{sp: s, id: req.ID, started: make(chan error, 1), ended: make(chan struct{})}
	s.procs[req.ID] = p
	s.mu.Unlock()
	if _, _, err := s.conn.WriteMsgUnix(req.Encode(), unix.UnixRights(fds...), nil); err != nil {
		s.mu.Lock()
		delete(s.procs, req.ID)
		s.mu.Unlock()
		return nil, fmt.Errorf("asking the spawner: %w", err)
	}
	select {
	case err := <-p.started:
		if err != nil {
			return nil, err
		}
		return p, nil
	case <-ctx.Done():
		return p, context.Cause(ctx)
	}
}

func (p *process) kill() {
	if p.fd == nil {
		p.ask(isolate.OpKill)
		return
	}
	if raw, err := p.fd.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) })
	}
}

// quit asks for the process's stacks, which it writes to the spawner's errs, and ends it.
func (p *process) quit() { p.ask(isolate.OpQuit) }

func (p *process) ask(op uint64) {
	var e execproto.Enc
	e.Uint(op)
	e.Uint(p.id)
	p.sp.conn.Write(e)
}

func (s *spawner) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// close ends the spawner and all processes that it has started, and waits for them.
func (s *spawner) close() {
	s.conn.CloseWrite()
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		s.cmd.Process.Kill()
		<-s.done
	}
}

// A tailBuffer keeps the last bytes written to it.
type tailBuffer struct {
	mu sync.Mutex
	b  []byte
	n  int64 // bytes written in all
}

const (
	tailKept  = 256 << 10 // enough for the stacks of an executor
	tailShown = 8 << 10
)

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.n += int64(len(p))
	if n := len(t.b) - tailKept; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// since returns what was written after the first n bytes, as far as it is kept.
func (t *tailBuffer) since(n int64) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b[len(t.b)-int(min(t.n-n, int64(len(t.b)))):])
}

func (t *tailBuffer) written() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

func (t *tailBuffer) suffix() string {
	s := t.String()
	if s = strings.TrimSpace(s[max(0, len(s)-tailShown):]); s != "" {
		return ": " + s
	}
	return ""
}

// spawners shares one spawner among all sandboxes of a driver, and ends it some time after the last
// sandbox.
type spawners struct {
	mu   sync.Mutex
	s    *spawner
	uses int
	idle *time.Timer
}

const idleSpawner = 2 * time.Second

func (ss *spawners) get() (*spawner, error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.idle != nil {
		ss.idle.Stop()
		ss.idle = nil
	}
	if ss.s != nil {
		select {
		case <-ss.s.done:
			ss.s, ss.uses = nil, 0
		default:
		}
	}
	if ss.s == nil {
		s, err := newSpawner()
		if err != nil {
			return nil, err
		}
		ss.s = s
	}
	ss.uses++
	return ss.s, nil
}

func (ss *spawners) put(s *spawner) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.s != s {
		return
	}
	if ss.uses--; ss.uses == 0 {
		ss.idle = time.AfterFunc(idleSpawner, ss.closeIdle)
	}
}

func (ss *spawners) closeIdle() {
	ss.mu.Lock()
	s := ss.s
	if ss.uses > 0 || s == nil {
		ss.mu.Unlock()
		return
	}
	ss.s = nil
	ss.mu.Unlock()
	s.close()
}
