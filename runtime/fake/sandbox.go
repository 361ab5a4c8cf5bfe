package fake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
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
	known    map[string]*memory // by Command.ID
	full     int                // outputs kept so far
	procs    int
	memory   int64
	peak     int64
	ooms     int64
	network  network
}

// A memory is what became of a command with an ID.
type memory struct {
	done chan struct{}
	exit sandbox.Exit
	err  error
}

// A tree is all the processes of one Exec, whatever they became later.
type tree struct {
	ctx    context.Context // ends when they are killed
	cancel context.CancelFunc
	killed bool          // guarded by the sandbox's mu, as all below
	oom    bool          // one of them passed the memory limit
	n      int           // processes that run
	idle   chan struct{} // closed when none does
}

var (
	_ sandbox.Sandbox  = (*Sandbox)(nil)
	_ sandbox.Dialer   = (*Sandbox)(nil)
	_ sandbox.Listener = (*Sandbox)(nil)
	_ sandbox.Stater   = (*Sandbox)(nil)
)

func (s *Sandbox) ID() string { return s.id }

// Spec is what the sandbox was made from.
func (s *Sandbox) Spec() sandbox.Spec { return s.spec }

func (s *Sandbox) err(op string, err error) error {
	return &sandbox.Error{Op: op, ID: s.id, Err: err, Inside: errors.As(err, new(syscall.Errno))}
}

// check says why nothing can be done any more.
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
		return sandbox.Exit{}, s.err("exec", fmt.Errorf("no program is named"))
	}
	if c.ID == "" {
		return s.exec(ctx, c)
	}
	s.mu.Lock()
	m := s.known[c.ID]
	if m == nil {
		m = &memory{done: make(chan struct{})}
		if s.known == nil {
			s.known = map[string]*memory{}
		}
		s.known[c.ID] = m
		s.mu.Unlock()
		m.exit, m.err = s.exec(ctx, c)
		close(m.done)
		return m.exit, m.err
	}
	s.mu.Unlock()
	select {
	case <-m.done:
		return m.exit, m.err
	case <-ctx.Done():
		return sandbox.Exit{}, s.err("exec", context.Cause(ctx))
	}
}

func (s *Sandbox) exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	begin := time.Now()
	oom, err := s.hooks(ctx, c)
	if err != nil {
		return sandbox.Exit{}, s.err("exec", err)
	}
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
	if p.Dir != "/" && !s.isDir(p.Dir) {
		f, code, why = nil, 126, "cannot start in "+p.Dir+": no such directory"
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
	if oom {
		f = func(context.Context, *Proc) int { p.outOfMemory(); return 0 }
	}
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
	if !p.ended { // killed, and deaf
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

// hooks do what the driver was told to.
func (s *Sandbox) hooks(ctx context.Context, c sandbox.Command) (oom bool, err error) {
	d := s.driver
	if err := wait(ctx, d.opts.SlowExec); err != nil {
		return false, err
	}
	if !d.hooked {
		return false, nil
	}
	d.hooks.Lock()
	defer d.hooks.Unlock()
	if err := countdown(&d.opts.FailExec); err != nil {
		return false, err
	}
	if d.opts.OnExec != nil {
		if err := d.opts.OnExec(s, c); err != nil {
			return false, err
		}
	}
	return countdown(&d.opts.OOM) != nil, nil
}

// finish closes the output and counts it.
func (s *Sandbox) finish(exit sandbox.Exit, out *output, c sandbox.Command, begin time.Time) sandbox.Exit {
	full := out.close()
	exit.Out, exit.Err = out.streams[0].cut.N(), out.streams[1].cut.N()
	if full != nil {
		s.mu.Lock()
		s.full++
		name := fmt.Sprintf("/tmp/.output/%d", s.full)
		s.mu.Unlock()
		// On a full disk there is none to be named.
		if s.files.mkdirAll("/tmp/.output", 0o755) == nil && s.files.write(name, full, 0o644, false) == nil {
			exit.Full = name
		}
	}
	exit.Wall = time.Since(begin)
	return exit
}

// lookup finds the function behind p.Args. It may change p.Args, as a script's first line asks.
func (s *Sandbox) lookup(p *Proc) (f Func, code int, why string) {
	name := p.Args[0]
	base := path.Base(name)
	if !strings.Contains(name, "/") || inPath(name) {
		if f := s.driver.commands[base]; f != nil {
			return f, 0, ""
		}
	}
	if !strings.Contains(name, "/") {
		return nil, 127, "command not found"
	}
	fi, err := s.files.stat(p.path(name), true)
	if err != nil {
		return nil, 127, "no such file or directory"
	}
	if fi.IsDir() || fi.Mode()&0o111 == 0 {
		return nil, 126, "permission denied"
	}
	data, err := s.files.read(p.path(name))
	if err != nil {
		return nil, 126, err.Error()
	}
	line, _, _ := strings.Cut(string(data[:min(len(data), 200)]), "\n")
	words := strings.Fields(strings.TrimPrefix(line, "#!"))
	if !strings.HasPrefix(line, "#!") || len(words) == 0 {
		return nil, 126, "exec format error"
	}
	if path.Base(words[0]) == "env" {
		words = words[1:]
	}
	if len(words) == 0 || s.driver.commands[path.Base(words[0])] == nil {
		return nil, 127, "bad interpreter"
	}
	p.Args = append(append(slices.Clone(words), name), p.Args[1:]...)
	return s.driver.commands[path.Base(words[0])], 0, ""
}

func (s *Sandbox) isDir(name string) bool {
	fi, err := s.files.stat(name, true)
	return err == nil && fi.IsDir()
}

func inPath(name string) bool {
	switch path.Dir(name) {
	case "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin":
		return true
	}
	return false
}

// kill tells the processes of a tree to end.
func (s *Sandbox) kill(t *tree) {
	s.mu.Lock()
	t.killed = true
	s.mu.Unlock()
	t.cancel()
}

// grace is how long a killed function may take to return.
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
	s.forget(t) // counted once, and nobody waits for it again
	s.mu.Unlock()
	s.driver.stuck.Add(int64(n))
	return false
}

// forget is called with mu held.
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
	s.network.closeAll()
	deaf := 0
	for _, t := range trees {
		if !s.settle(t) {
			deaf++
		}
	}
	if deaf > 0 {
		return s.err("kill all", fmt.Errorf("%d commands did not end", deaf))
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
	s.network.close()
	if busy {
		s.killAll() // what is deaf is told by CheckAllClosed
	}
	d.mu.Lock()
	delete(d.live, s.id)
	d.mu.Unlock()
	if d.fragile {
		d.hooks.Lock()
		defer d.hooks.Unlock()
		if err := countdown(&d.opts.FailClose); err != nil {
			s.closeErr = s.err("close", err)
		}
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

// Listen serves a port from outside: KillAll leaves it open.
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
