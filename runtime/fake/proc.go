package fake

import (
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

// A Proc is a running command and its access to the sandbox. File names may be relative to Dir.
type Proc struct {
	Args           []string
	Dir, User      string
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	env     map[string]string // set by the command, over the spec's
	sandbox *Sandbox
	tree    *tree

	// Guarded by the sandbox's mu.
	memory int64
	ended  bool
	code   int
	signal string
	done   chan struct{}
}

// run calls the function of a process and records its end.
func (p *Proc) run(f Func) {
	code := -1
	defer func() {
		s, t := p.sandbox, p.tree
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case p.signal != "": // by Die
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
			close(t.idle)
			t.cancel()
		}
		close(p.done)
	}()
	code = f(p.tree.ctx, p)
}

// Start starts another process of the same command. If the command times out, both are killed;
// otherwise the process may outlive the command, as a daemon. It has no input; nil writers discard
// its output.
func (p *Proc) Start(f Func, stdout, stderr io.Writer, args ...string) error {
	if stdout == nil {
		stdout = io.Discard
	}
	if stderr == nil {
		stderr = io.Discard
	}
	s := p.sandbox
	child := &Proc{Args: args, Dir: p.Dir, User: p.User, Stdin: strings.NewReader(""), Stdout: stdout, Stderr: stderr,
		env: p.env, sandbox: s, tree: p.tree, done: make(chan struct{})}
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

// maxPids is the limit of processes. There always is one, to protect the host from a command that
// starts itself.
func (s *Sandbox) maxPids() int {
	if s.spec.Pids > 0 {
		return s.spec.Pids
	}
	return 4096
}

// Sandbox returns the sandbox that this process runs in.
func (p *Proc) Sandbox() *Sandbox { return p.sandbox }

// Die ends this process by a signal, such as "SIGSEGV". It does not return. It must be called on
// the goroutine of the process.
func (p *Proc) Die(signal string) {
	p.sandbox.mu.Lock()
	p.signal = signal
	p.sandbox.mu.Unlock()
	runtime.Goexit()
}

// KillAll kills all processes of the sandbox, this one too. It does not return.
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

// Alloc uses n bytes of memory until the process ends. If that exceeds the sandbox's limit, the
// process is killed and Alloc does not return.
func (p *Proc) Alloc(n int64) {
	s := p.sandbox
	s.mu.Lock()
	p.memory += n
	s.memory += n
	over := s.spec.Memory > 0 && s.memory > s.spec.Memory
	if over {
		p.tree.oom = true
		s.ooms++
	} else {
		s.peak = max(s.peak, s.memory)
	}
	s.mu.Unlock()
	if over {
		p.Die("SIGKILL")
	}
}

// Sleep waits for the duration d. It reports false if the process was killed before.
func (p *Proc) Sleep(d time.Duration) bool { return wait(p.tree.ctx, d) == nil }

var defaultEnv = map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME": "/root"}

// Environ returns the environment in the form "key=value", sorted.
func (p *Proc) Environ() []string {
	all := map[string]string{}
	for _, m := range []map[string]string{defaultEnv, p.sandbox.spec.Env, p.env} {
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

// ID returns the numeric user and group of User ("7:8"), and 0 for names.
func (p *Proc) ID() (uid, gid int) {
	u, g, _ := strings.Cut(p.User, ":")
	uid, _ = strconv.Atoi(u)
	gid, _ = strconv.Atoi(g)
	return uid, gid
}

// path makes a name absolute. It keeps "..", since "link/.." is the parent of the link's target.
func (p *Proc) path(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return p.Dir + "/" + name
}

// ReadFile returns the content of a file, which the caller must not change.
func (p *Proc) ReadFile(name string) ([]byte, error) { return p.sandbox.files.read(p.path(name)) }

func (p *Proc) WriteFile(name string, data []byte, perm fs.FileMode) error {
	return p.sandbox.files.write(p.path(name), data, perm)
}

// Create opens a file for appending. If truncate is set, it empties the file first.
func (p *Proc) Create(name string, perm fs.FileMode, truncate bool) (io.WriteCloser, error) {
	n, err := p.sandbox.files.open(p.path(name), perm, truncate)
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

// Chmod changes the permissions of a file, which are only recorded.
func (p *Proc) Chmod(name string, perm fs.FileMode) error {
	return p.sandbox.files.chmod(p.path(name), perm)
}

// Link creates a hard link.
func (p *Proc) Link(old, name string) error {
	return p.sandbox.files.hardLink(p.path(old), p.path(name))
}

func (p *Proc) Mkfifo(name string) error {
	return p.sandbox.files.make("mkfifo", p.path(name), &node{mode: fs.ModeNamedPipe | 0o644})
}

func (p *Proc) Mkdir(name string, perm fs.FileMode) error {
	return p.sandbox.files.make("mkdir", p.path(name), newDir(perm))
}

// Listen opens a port on the sandbox's loopback interface, which is closed when the process is
// killed. Dial connects to such a port.
func (p *Proc) Listen(port int) (net.Listener, error) {
	return p.sandbox.network.listen(p.tree.ctx, port, true)
}
func (p *Proc) Dial(port int) (net.Conn, error) { return p.sandbox.network.dial(port) }
