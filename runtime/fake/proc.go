package fake

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"path"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Proc is what a running command sees of its machine. Names of files may be relative to Dir.
type Proc struct {
	Args           []string
	Dir, User      string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	env     map[string]string // the command's own; what is not there is the spec's
	sandbox *Sandbox
	tree    *tree

	// Guarded by the sandbox's mu.
	memory int64
	ended  bool
	code   int
	signal string
	done   chan struct{}
}

// run is a process: the function, and the book-keeping at its end.
func (p *Proc) run(f Func) {
	code := -1
	defer func() {
		s, t := p.sandbox, p.tree
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case p.signal != "": // died by its own hand
			p.code = -1
		case t.killed:
			p.code, p.signal = -1, "SIGKILL"
		default:
			p.code = code & 0xff
		}
		p.ended = true
		s.memory -= p.memory
		s.procs--
		if t.n--; t.n == 0 {
			s.forget(t)
			t.cancelIdle()
		}
		close(p.done)
	}()
	code = f(p.tree.ctx, p)
}

func (t *tree) cancelIdle() {
	close(t.idle)
	t.cancel()
}

// Start starts another process, which belongs to the same command for ever: it dies with it in a
// time-out, and outlives it otherwise. It has no input; nil writers drop.
func (p *Proc) Start(f Func, stdout, stderr io.Writer, args ...string) error {
	if stdout == nil {
		stdout = io.Discard
	}
	if stderr == nil {
		stderr = io.Discard
	}
	return p.spawn(f, &Proc{Args: args, Dir: p.Dir, User: p.User, Stdin: strings.NewReader(""), Stdout: stdout,
		Stderr: stderr, env: p.env})
}

// spawn starts child, whose done is closed at its end.
func (p *Proc) spawn(f Func, child *Proc) error {
	s := p.sandbox
	child.sandbox, child.tree, child.done = s, p.tree, make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.tree.killed:
		return syscall.ESRCH
	case s.procs >= s.maxPids():
		return syscall.EAGAIN
	}
	p.tree.n++
	s.procs++
	go child.run(f)
	return nil
}

// maxPids is never without limit: a script that calls itself is the host's memory.
func (s *Sandbox) maxPids() int {
	if s.spec.Pids > 0 {
		return s.spec.Pids
	}
	return 4096
}

// Machine is the sandbox that this process runs in.
func (p *Proc) Machine() *Sandbox { return p.sandbox }

// Command finds the function of a command.
func (p *Proc) Command(name string) (Func, bool) {
	f, ok := p.sandbox.driver.commands[name]
	return f, ok
}

// Die ends this process by a signal ("SIGSEGV"). It does not return; call it from the process's own
// goroutine.
func (p *Proc) Die(signal string) {
	p.sandbox.mu.Lock()
	p.signal = signal
	p.sandbox.mu.Unlock()
	runtime.Goexit()
}

// KillAll ends all processes of the machine, this one too. It does not return.
func (p *Proc) KillAll() {
	s := p.sandbox
	s.mu.Lock()
	trees := append([]*tree(nil), s.trees...)
	for _, t := range trees {
		t.killed = true
	}
	s.mu.Unlock()
	for _, t := range trees {
		t.cancel()
	}
	p.Die("SIGKILL")
}

// Alloc uses n bytes of memory until the process ends. Passing the sandbox's limit kills it; then
// it does not return.
func (p *Proc) Alloc(n int64) {
	s := p.sandbox
	s.mu.Lock()
	p.memory += n
	s.memory += n
	over := s.spec.Memory > 0 && s.memory > s.spec.Memory
	if !over {
		s.peak = max(s.peak, s.memory)
	}
	s.mu.Unlock()
	if over {
		p.outOfMemory()
	}
}

func (p *Proc) outOfMemory() {
	p.sandbox.mu.Lock()
	p.tree.oom = true
	p.sandbox.ooms++
	p.sandbox.mu.Unlock()
	p.Die("SIGKILL")
}

// Sleep waits, and reports whether it did for the whole time: false means that the process was
// killed.
func (p *Proc) Sleep(d time.Duration) bool { return wait(p.tree.ctx, d) == nil }

// Getenv is "" for what is not set.
func (p *Proc) Getenv(name string) string {
	if v, ok := p.env[name]; ok {
		return v
	}
	if v, ok := p.sandbox.spec.Env[name]; ok {
		return v
	}
	return defaults[name]
}

var defaults = map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME": "/root"}

// Environ is the whole environment, sorted.
func (p *Proc) Environ() []string {
	all := map[string]string{}
	for _, m := range []map[string]string{defaults, p.sandbox.spec.Env, p.env} {
		for k, v := range m {
			all[k] = v
		}
	}
	list := make([]string, 0, len(all))
	for k, v := range all {
		list = append(list, k+"="+v)
	}
	sort.Strings(list)
	return list
}

// ID is the numbers of User, as far as it has any; root is 0.
func (p *Proc) ID() (uid, gid int) {
	u, g, _ := strings.Cut(p.User, ":")
	uid, _ = strconv.Atoi(u)
	gid, _ = strconv.Atoi(g)
	return uid, gid
}

// path is the absolute form of a name. ".." stays: behind a link it means something else than it
// does as text.
func (p *Proc) path(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return p.Dir + "/" + name
}

// ReadFile returns the content of a file, which is not to be changed.
func (p *Proc) ReadFile(name string) ([]byte, error) { return p.sandbox.files.read(p.path(name)) }

func (p *Proc) WriteFile(name string, data []byte, perm fs.FileMode) error {
	return p.sandbox.files.write(p.path(name), data, perm, false)
}

func (p *Proc) AppendFile(name string, data []byte, perm fs.FileMode) error {
	return p.sandbox.files.write(p.path(name), data, perm, true)
}

// Create opens a file for writing at its end; truncate empties it first.
func (p *Proc) Create(name string, perm fs.FileMode, truncate bool) (io.WriteCloser, error) {
	n, err := p.sandbox.files.open(p.path(name), perm, true, truncate)
	if err != nil {
		return nil, err
	}
	return &openFile{&p.sandbox.files, n}, nil
}

type openFile struct {
	fs *filesystem
	n  *node
}

func (f *openFile) Write(p []byte) (int, error) { return f.fs.grow(f.n, p) }
func (f *openFile) Close() error                { return nil }

func (p *Proc) Stat(name string) (fs.FileInfo, error) {
	return p.sandbox.files.stat(p.path(name), true)
}
func (p *Proc) Lstat(name string) (fs.FileInfo, error) {
	return p.sandbox.files.lstat(p.path(name))
}

func (p *Proc) Readlink(name string) (string, error) {
	fi, err := p.Lstat(name)
	if err != nil {
		return "", err
	}
	if fi.Mode()&fs.ModeSymlink == 0 {
		return "", pathError("readlink", name, syscall.EINVAL)
	}
	return fi.(info).link, nil
}

func (p *Proc) Symlink(target, name string) error {
	return p.sandbox.files.make("symlink", p.path(name), &node{mode: fs.ModeSymlink | 0o777, link: target})
}

// Chmod changes the permissions of a file. Nobody is kept from reading by them.
func (p *Proc) Chmod(name string, perm fs.FileMode) error {
	return p.sandbox.files.chmod(p.path(name), perm)
}

// Link gives a file a second name.
func (p *Proc) Link(old, name string) error {
	return p.sandbox.files.hardLink(p.path(old), p.path(name))
}

func (p *Proc) Mkfifo(name string) error {
	return p.sandbox.files.make("mkfifo", p.path(name), &node{mode: fs.ModeNamedPipe | 0o644})
}

func (p *Proc) Mkdir(name string, perm fs.FileMode) error {
	return p.sandbox.files.make("mkdir", p.path(name), newDir(perm))
}

func (p *Proc) MkdirAll(name string, perm fs.FileMode) error {
	return p.sandbox.files.mkdirAll(p.path(name), perm)
}

func (p *Proc) ReadDir(name string) ([]fs.FileInfo, error) {
	return p.sandbox.files.readDir(p.path(name))
}

// Remove removes a file or an empty folder; RemoveAll whatever is there.
func (p *Proc) Remove(name string) error { return p.sandbox.files.remove(p.path(name), false) }
func (p *Proc) RemoveAll(name string) error {
	err := p.sandbox.files.remove(p.path(name), true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Listen opens a port on the machine's loopback; it is closed when the process is killed. Dial
// connects to one.
func (p *Proc) Listen(port int) (net.Listener, error) {
	return p.sandbox.network.listen(p.tree.ctx, port, true)
}
func (p *Proc) Dial(port int) (net.Conn, error) { return p.sandbox.network.dial(port) }
