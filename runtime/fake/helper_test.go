package fake_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest/verb"
)

// helper implements the suite's helper program as a function.
func helper() fake.Options {
	locks := &locks{held: map[string]*fake.Proc{}}
	var run fake.Func
	run = func(ctx context.Context, p *fake.Proc) int {
		w := &world{p: p, ctx: ctx, locks: locks, self: run}
		defer locks.release(p)
		return verb.Run(w, p.Args[1:])
	}
	return fake.Options{Commands: map[string]fake.Func{"helper": run}}
}

// locks are the file locks that processes hold.
type locks struct {
	mu   sync.Mutex
	held map[string]*fake.Proc // by sandbox ID and file name
}

func (l *locks) release(p *fake.Proc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, holder := range l.held {
		if holder == p {
			delete(l.held, name)
		}
	}
}

type world struct {
	p     *fake.Proc
	ctx   context.Context
	locks *locks
	self  fake.Func
}

func (w *world) Stdin() io.Reader           { return w.p.Stdin }
func (w *world) Stdout() io.Writer          { return w.p.Stdout }
func (w *world) Stderr() io.Writer          { return w.p.Stderr }
func (w *world) Environ() []string          { return w.p.Environ() }
func (w *world) Getwd() (string, error)     { return w.p.Dir, nil }
func (w *world) ID() (int, int)             { return w.p.ID() }
func (w *world) Fds() []string              { return nil }
func (w *world) Interfaces() []string       { return nil }
func (w *world) PidNamespace() string       { return "" }
func (w *world) Ignore()                    {} // there is no signal but the one that cannot be ignored
func (w *world) ExitMainThread()            {}
func (w *world) Alloc(n int64) error        { w.p.Alloc(n); return nil }
func (w *world) Sleep(d time.Duration) bool { return w.p.Sleep(d) }
func (w *world) Spin(time.Duration)         {}
func (w *world) Mkfifo(name string) error   { return w.p.Mkfifo(name) }

func (w *world) Open(name string) (io.ReadCloser, error) {
	b, err := w.p.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(&reader{b}), nil
}

type reader struct{ b []byte }

func (r *reader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}

func (w *world) Create(name string, flag int, perm fs.FileMode) (io.WriteCloser, error) {
	return w.p.Create(name, perm, flag&os.O_TRUNC != 0)
}
func (w *world) Lstat(name string) (fs.FileInfo, error)    { return w.p.Lstat(name) }
func (w *world) Readlink(name string) (string, error)      { return w.p.Readlink(name) }
func (w *world) Symlink(target, name string) error         { return w.p.Symlink(target, name) }
func (w *world) Mkdir(name string, perm fs.FileMode) error { return w.p.Mkdir(name, perm) }

func (w *world) Hold(name string) error {
	if _, err := w.p.Create(name, 0o644, false); err != nil {
		return err
	}
	w.locks.mu.Lock()
	defer w.locks.mu.Unlock()
	w.locks.held[w.p.Sandbox().ID()+name] = w.p
	return nil
}

func (w *world) Held(name string) (bool, error) {
	if _, err := w.p.Lstat(name); err != nil {
		return false, err
	}
	w.locks.mu.Lock()
	defer w.locks.mu.Unlock()
	return w.locks.held[w.p.Sandbox().ID()+name] != nil, nil
}

func (w *world) Start(how string, keep bool, args ...string) error {
	var out, errs io.Writer
	if keep {
		out, errs = w.p.Stdout, w.p.Stderr
	}
	return w.p.Start(w.self, out, errs, append([]string{"helper"}, args...)...)
}

func (w *world) Kill(pid, sig int) error {
	names := map[int]string{9: "SIGKILL", 15: "SIGTERM"}
	switch {
	case names[sig] == "":
		return fmt.Errorf("no signal %d", sig)
	case pid == -1:
		w.p.KillAll()
	case pid == 0:
		w.p.Die(names[sig])
	}
	return fmt.Errorf("no process %d", pid)
}

func (w *world) Listen(port int) (net.Listener, error) { return w.p.Listen(port) }
func (w *world) Dial(port int) (net.Conn, error)       { return w.p.Dial(port) }

func (w *world) DialUnix(string) (net.Conn, error)         { return nil, fs.ErrNotExist }
func (w *world) Chmod(name string, perm fs.FileMode) error { return w.p.Chmod(name, perm) }
func (w *world) CloseOutput()                              {}
func (w *world) Link(old, name string) error               { return w.p.Link(old, name) }
