package fake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Sandbox is a machine in memory.
type Sandbox struct {
	driver *Driver
	id     string
	spec   sandbox.Spec
	files  filesystem

	mu       sync.Mutex
	closed   bool
	closing  chan struct{} // made by the first Close, closed when it is over
	closeErr error
	trees    []*tree
	results  map[string]*result // by Command.ID
	full     int                // outputs kept so far
	procs    int
	memory   int64
	peak     int64
	ooms     int64
	network  network
}

// A result is the outcome of a command that has an ID; it is valid when done is closed.
type result struct {
	done chan struct{}
	exit sandbox.Exit
	err  error
}

// A tree is the processes of one Exec, including daemons that outlive it.
type tree struct {
	ctx    context.Context // canceled to kill them
	cancel context.CancelFunc
	idle   chan struct{} // closed when none of them runs any more

	// Guarded by the sandbox's mu.
	killed bool
	oom    bool // one of them exceeded the memory limit
	n      int  // processes running
}

var (
	_ sandbox.Sandbox  = (*Sandbox)(nil)
	_ sandbox.Dialer   = (*Sandbox)(nil)
	_ sandbox.Listener = (*Sandbox)(nil)
	_ sandbox.Stater   = (*Sandbox)(nil)
)

func (s *Sandbox) ID() string { return s.id }

func (s *Sandbox) err(op string, err error) error {
	return &sandbox.Error{Op: op, ID: s.id, Err: err, Inside: errors.As(err, new(syscall.Errno))}
}

// check returns an error if ctx has ended or the sandbox is closed.
func (s *Sandbox) check(ctx context.Context, op string) error {
	if ctx.Err() != nil {
		return s.err(op, context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.err(op, sandbox.ErrGone)
	}
	return nil
}

func (s *Sandbox) Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	if err := s.check(ctx, "exec"); err != nil {
		return sandbox.Exit{}, err
	}
	if len(c.Args) == 0 {
		return sandbox.Exit{}, s.err("exec", errors.New("Command.Args is empty"))
	}
	if c.ID == "" {
		return s.exec(ctx, c)
	}
	s.mu.Lock()
	r := s.results[c.ID]
	if r == nil {
		r = &result{done: make(chan struct{})}
		if s.results == nil {
			s.results = map[string]*result{}
		}
		s.results[c.ID] = r
		s.mu.Unlock()
		r.exit, r.err = s.exec(ctx, c)
		close(r.done)
		return r.exit, r.err
	}
	s.mu.Unlock()
	select {
	case <-r.done:
		return r.exit, r.err
	case <-ctx.Done():
		return sandbox.Exit{}, s.err("exec", context.Cause(ctx))
	}
}

func (s *Sandbox) exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	begin := time.Now()
	out := newOutput(c)
	var exit sandbox.Exit
	p := &Proc{Args: c.Args, Dir: c.Dir, User: c.User, Stdin: c.Stdin, Stdout: out.out(), Stderr: out.err(), env: c.Env,
		sandbox: s}
	if p.Dir == "" {
		p.Dir = s.spec.Dir
	}
	if p.Dir == "" {
		p.Dir = "/"
	}
	if p.User == "" {
		p.User = s.spec.User
	}

	f, code, why := s.lookup(p)
	if fi, err := s.files.stat(p.Dir); p.Dir != "/" && (err != nil || !fi.IsDir()) {
		f, code, why = nil, 126, "no such directory: "+p.Dir
	}
	if f == nil {
		fmt.Fprintf(p.Stderr, "%s: %s\n", c.Args[0], why)
		exit.Code = code
		return s.finish(exit, out, c, begin), nil
	}
	t := &tree{idle: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		t.cancel()
		return sandbox.Exit{}, s.err("exec", sandbox.ErrGone)
	}
	p.tree, p.done = t, make(chan struct{})
	p.Stdin = input(t.ctx, c.Stdin)
	s.trees = append(s.trees, t)
	t.n++
	s.procs++
	s.mu.Unlock()
	go p.run(f)

	var timeout <-chan time.Time
	if c.Timeout > 0 {
		timer := time.NewTimer(c.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	var canceled error
	select {
	case <-p.done:
	case <-t.ctx.Done(): // KillAll or Close
		s.settle(t)
	case <-timeout:
		exit.TimedOut = true
		s.kill(t)
		s.settle(t)
	case <-ctx.Done():
		canceled = context.Cause(ctx)
		s.kill(t)
		s.settle(t)
	}

	s.mu.Lock()
	exit.Code, exit.Signal, exit.OOM = p.code, p.signal, t.oom
	if !p.ended { // abandoned
		exit.Code, exit.Signal = -1, "SIGKILL"
	}
	gone := s.closed && exit.Signal == "SIGKILL" && !exit.TimedOut && !exit.OOM
	s.mu.Unlock()
	exit = s.finish(exit, out, c, begin)
	switch {
	case canceled != nil:
		return exit, s.err("exec", canceled)
	case gone:
		return exit, s.err("exec", sandbox.ErrGone)
	}
	return exit, nil
}

// finish closes the output, records its size and keeps the whole of it if some was left out.
func (s *Sandbox) finish(exit sandbox.Exit, out *output, c sandbox.Command, begin time.Time) sandbox.Exit {
	full := out.close()
	exit.Out, exit.Err = out.streams[0].cut.N(), out.streams[1].cut.N()
	if full != nil {
		s.mu.Lock()
		s.full++
		name := fmt.Sprintf("/tmp/.output/%d", s.full)
		s.mu.Unlock()
		// A full disk leaves Full empty.
		if s.files.mkdirAll("/tmp/.output", 0o755) == nil && s.files.write(name, full, 0o644) == nil {
			exit.Full = name
		}
	}
	exit.Wall = time.Since(begin)
	return exit
}

// lookup finds the function of a program, or the exit code and message of a shell that could not
// start it.
func (s *Sandbox) lookup(p *Proc) (f Func, code int, why string) {
	name := p.Args[0]
	if !strings.Contains(name, "/") {
		if f := s.driver.opts.Commands[name]; f != nil {
			return f, 0, ""
		}
		return nil, 127, "command not found"
	}
	if _, err := s.files.stat(p.path(name)); err != nil {
		return nil, 127, "no such file or directory"
	}
	return nil, 126, "permission denied" // no file is a program
}

// kill kills the processes of a tree, without waiting for them.
func (s *Sandbox) kill(t *tree) {
	s.mu.Lock()
	t.killed = true
	s.mu.Unlock()
	t.cancel()
}

// grace is the time that a killed function has to return.
const grace = time.Second

// settle waits until the processes of a killed tree have ended, and reports whether they did.
func (s *Sandbox) settle(t *tree) bool {
	select {
	case <-t.idle:
		return true
	default:
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-t.idle:
		return true
	case <-timer.C:
	}
	s.mu.Lock()
	n := t.n
	s.forget(t) // so that it is counted and waited for only once
	s.mu.Unlock()
	s.driver.stuck.Add(int64(n))
	return false
}

// forget removes a tree. The caller holds mu.
func (s *Sandbox) forget(t *tree) {
	if i := slices.Index(s.trees, t); i >= 0 {
		s.trees = slices.Delete(s.trees, i, i+1)
	}
}

func (s *Sandbox) KillAll(ctx context.Context) error {
	if err := s.check(ctx, "kill all"); err != nil {
		return err
	}
	return s.killAll()
}

func (s *Sandbox) killAll() error {
	s.mu.Lock()
	trees := slices.Clone(s.trees)
	for _, t := range trees {
		t.killed = true
	}
	s.mu.Unlock()
	for _, t := range trees {
		t.cancel()
	}
	s.network.close(false)
	stuck := 0
	for _, t := range trees {
		if !s.settle(t) {
			stuck++
		}
	}
	if stuck > 0 {
		return s.err("kill all", fmt.Errorf("%d commands did not end", stuck))
	}
	return nil
}

func (s *Sandbox) Close() error {
	s.mu.Lock()
	if s.closing != nil {
		closing := s.closing
		s.mu.Unlock()
		<-closing
		return s.closeErr
	}
	s.closing = make(chan struct{})
	s.closed = true
	busy := len(s.trees) > 0
	s.mu.Unlock()

	defer close(s.closing)
	d := s.driver
	if d.opts.SlowClose > 0 {
		time.Sleep(d.opts.SlowClose)
	}
	s.network.close(true)
	if busy {
		s.killAll() // CheckAllClosed reports the commands that did not end
	}
	d.mu.Lock()
	delete(d.live, s.id)
	d.mu.Unlock()
	if err := d.inject(&d.failClose); err != nil {
		s.closeErr = s.err("close", err)
	}
	return s.closeErr
}

func (s *Sandbox) Stats(ctx context.Context) (sandbox.Stats, error) {
	if err := s.check(ctx, "stats"); err != nil {
		return sandbox.Stats{}, err
	}
	s.files.mu.Lock()
	disk := s.files.used
	s.files.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	mem, peak, pids, ooms := s.memory, s.peak, s.procs, s.ooms
	return sandbox.Stats{Memory: &mem, MaxMemory: &peak, Disk: &disk, Pids: &pids, OOMKills: &ooms}, nil
}

// Adopt implements [sandbox.Adopter].
func (s *Sandbox) Adopt(o sandbox.Owner) error {
	if err := s.check(context.Background(), "adopt"); err != nil {
		return err
	}
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	s.spec.Owner = o.OrSelf()
	return nil
}

func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	if err := s.check(ctx, "dial"); err != nil {
		return nil, err
	}
	c, err := s.network.dial(port)
	if err != nil {
		return nil, s.err("dial", err)
	}
	return c, nil
}

// Listen opens a port inside the sandbox that the host serves. KillAll does not close it.
func (s *Sandbox) Listen(ctx context.Context, port int) (net.Listener, error) {
	if err := s.check(ctx, "listen"); err != nil {
		return nil, err
	}
	l, err := s.network.listen(context.WithoutCancel(ctx), port, false)
	if err != nil {
		return nil, s.err("listen", err)
	}
	return l, nil
}
