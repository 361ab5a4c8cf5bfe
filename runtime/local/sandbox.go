package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/isolate"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A box is one sandbox.
type box struct {
	d     *Driver
	id    string
	owner sandbox.Owner
	sp    *spawner
	p     *process
	c     *executor.Client
	own   *executor.Entry // the ENTRYPOINT; nil: none
	gate  *egress.Gate    // nil: no network
	cg    *group
	tmp   string // without isolation: its directory
	base  int    // its first outer user; 0: it has none of its own

	once   sync.Once
	closed chan struct{}
	err    error

	died     sync.Once
	outgrown bool // killed for exceeding its own memory limit
}

// killed is how Go describes the end of a killed process.
const killed = "signal: killed"

// userLimitShare divides the kernel's limits per user if all sandboxes run as the same outer user:
// each sandbox gets 1/userLimitShare of them.
const userLimitShare = 8

// start creates an isolated box.
func (b *box) start(ctx context.Context, spec sandbox.Spec, image string) (err error) {
	if b.sp, err = b.d.sp.get(); err != nil {
		return err
	}
	b.saveState(findGroups().dirs(b.id, &spec))
	if b.cg, err = findGroups().make(b.id, &spec); err != nil {
		return err
	}
	defer b.cg.close()
	req := isolate.Start{Name: b.id, Base: uint64(os.Geteuid()), Size: 1,
		Remove: append(slices.Clone(b.cg.dirs), b.stateFile()), Tasks: uint64(len(b.cg.tasks))}
	root := manyUsers()
	if root {
		b.base = outerUsers().acquire()
		req.Base, req.Size = uint64(b.base), Count
	}
	cfg := executor.Config{
		Env: environ(spec.Env), Dir: spec.Dir, User: spec.User, OnlyUID: !root, Orphan: spec.Orphan, Drop: true,
		Trace:  spec.Trace,
		Limits: map[string]uint64{"core": 0},
	}
	if g := findGroups(); !g.has("pids") {
		cfg.Limits["nproc"] = uint64(spec.Pids + executor.OwnPids)
	}
	if !findGroups().has("memory") && spec.Memory > 0 {
		cfg.Limits["as"] = uint64(spec.Memory)
	}
	l := layoutOf(&spec, image)
	if !root {
		l.Share = userLimitShare
		for name, res := range map[string]int{"msgqueue": unix.RLIMIT_MSGQUEUE, "sigpending": unix.RLIMIT_SIGPENDING} {
			var have unix.Rlimit
			if err := unix.Getrlimit(res, &have); err != nil {
				return fmt.Errorf("reading the limit %s: %w", name, err)
			}
			cfg.Limits[name] = have.Cur / userLimitShare
		}
	}
	var extra []int
	for _, f := range b.cg.tasks {
		extra = append(extra, int(f.Fd()))
	}
	if image != "" && root {
		f, err := idMappedMount(image, b.base)
		if err != nil {
			return err
		}
		defer f.Close()
		l.ImageFD = isolate.FirstTask + len(extra)
		extra = append(extra, int(f.Fd()))
		req.Image = true
	}
	if b.cg.born != nil {
		req.Group = true
		extra = append(extra, int(b.cg.born.Fd()))
	}
	if !hasNetwork(&spec) {
		cfg.Setup = l.Encode()
		return b.connect(ctx, req, extra, cfg)
	}
	prepareNetwork(&spec, l, &cfg)
	cfg.Setup = l.Encode()
	if err := b.connect(ctx, req, extra, cfg); err != nil {
		return err
	}
	return b.attach(ctx, spec.Network)
}

// connect starts the executor and connects to it.
func (b *box) connect(ctx context.Context, req isolate.Start, extra []int, cfg executor.Config) error {
	ours, theirs, err := executor.Channel()
	if err != nil {
		return err
	}
	b.p, err = b.sp.start(ctx, req, append([]int{int(theirs.Fd())}, extra...))
	theirs.Close()
	if err != nil {
		ours.Close()
		return fmt.Errorf("starting its first process: %w", err)
	}
	b.c, err = executor.New(ctx, ours, executor.Options{
		Driver: b.d.Name(), ID: b.id, Config: cfg, Disk: !b.d.plain, Gone: b.gone, Hung: b.hung, Grace: b.d.grace,
		Start: b.d.first,
	})
	return err
}

// enter starts the ENTRYPOINT, and waits until the sandbox is healthy.
func (b *box) enter(ctx context.Context, spec sandbox.Spec) error {
	var ended <-chan struct{}
	if args := slices.Concat(spec.Entrypoint, spec.Cmd); len(args) > 0 {
		b.own = b.c.Start(sandbox.Command{Args: args})
		ended = b.own.Done()
	}
	if spec.Health == nil {
		return nil
	}
	return executor.WaitHealthy(ctx, b, *spec.Health, ended)
}

// Logs returns the output of the ENTRYPOINT.
func (b *box) Logs() []byte {
	if b.own == nil {
		return nil
	}
	return b.own.Logs()
}

// gone returns why the executor no longer responds.
func (b *box) gone() error {
	select {
	case <-b.p.ended:
	case <-time.After(2 * time.Second): // its channel ends shortly before it is reaped
	}
	select {
	case <-b.closed:
		return fmt.Errorf("%w: it was closed", sandbox.ErrGone)
	default:
	}
	b.died.Do(func() { b.outgrown = b.cg != nil && b.p.how == killed && b.cg.oomSince() })
	if b.outgrown {
		return sandbox.ErrSandboxOOM
	}
	return fmt.Errorf("%w: its executor has ended (%s)%s", sandbox.ErrGone, b.p.how, b.sp.errs.suffix())
}

func (b *box) ID() string                 { return b.id }
func (b *box) Executor() *executor.Client { return b.c }

func (b *box) Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	x, err := b.c.Exec(ctx, cmd)
	if b.cg == nil {
		return x, err
	}
	if errors.Is(err, sandbox.ErrSandboxOOM) && ctx.Err() == nil {
		// The limit has killed even process 1: that is the result of the command, not a failure of
		// the infrastructure.
		return sandbox.Exit{Code: -1, Signal: "SIGKILL", OOM: true}, nil
	}
	if err == nil {
		x.OOM = b.cg.oomSince() && (x.Code != 0 || x.Signal != "")
	}
	return x, err
}

// Shell makes one call of a persistent shell.
func (b *box) Shell(ctx context.Context, call sandbox.ShellCall) (sandbox.ShellResult, error) {
	x, err := b.c.Shell(ctx, call)
	if err == nil && b.cg != nil {
		x.OOM = b.cg.oomSince()
	}
	return x, err
}

// Terminal runs a command on a terminal.
func (b *box) Terminal(ctx context.Context, t sandbox.Terminal) (sandbox.Exit, error) {
	return b.c.Terminal(ctx, t)
}

func (b *box) Put(ctx context.Context, dir string, src fs.FS) error { return b.c.Put(ctx, dir, src) }
func (b *box) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return b.c.Get(ctx, name)
}
func (b *box) FileOp(ctx context.Context, op sandbox.FileOp) (sandbox.FileResult, error) {
	return b.c.FileOp(ctx, op)
}
func (b *box) KillAll(ctx context.Context) error { return b.c.KillAll(ctx) }
func (b *box) Dial(ctx context.Context, port int) (net.Conn, error) {
	return b.c.Dial(ctx, port)
}
func (b *box) Listen(ctx context.Context, port int) (net.Listener, error) {
	return b.c.Listen(ctx, port)
}

func (b *box) Stats(ctx context.Context) (sandbox.Stats, error) {
	st, err := b.c.Stats(ctx)
	if err == nil && b.cg != nil {
		b.cg.stats(&st)
	}
	return st, err
}

// Close kills process 1, and so everything in its namespaces, and waits until the kernel has
// removed it.
func (b *box) Close() error {
	b.once.Do(func() {
		defer close(b.closed)
		b.err = b.destroy()
	})
	<-b.closed
	return b.err
}

const closeLimit = 15 * time.Second

func (b *box) destroy() error {
	if b.gate != nil {
		b.gate.Close()
	}
	if b.p != nil {
		if !b.d.plain {
			b.p.kill()
		}
		if b.c != nil {
			b.c.Close()
		}
		select {
		case <-b.p.ended:
		case <-time.After(closeLimit):
			if b.d.plain { // it should have killed its processes, but hangs
				killDescendants(b.p.pid)
			}
			b.p.kill()
			select {
			case <-b.p.ended:
			case <-time.After(closeLimit / 5):
				return &sandbox.Error{Op: "close", ID: b.id, Err: errors.New("its first process does not end")}
			}
		}
	}
	if b.cg != nil {
		b.cg.close()
		if b.cg.oom != nil {
			b.cg.oom.Close()
		}
	}
	if b.p == nil || b.sp.ended() { // otherwise the spawner has done it
		if b.cg != nil {
			b.cg.remove()
		}
		if b.tmp != "" {
			removeAll(b.tmp)
		}
		os.Remove(b.stateFile())
	}
	if b.base != 0 {
		outerUsers().release(b.base)
	}
	b.d.mu.Lock()
	delete(b.d.live, b.id)
	b.d.mu.Unlock()
	if b.sp != nil {
		b.d.sp.put(b.sp)
	}
	return nil
}

// environ returns the environment of commands besides their own variables: nothing of this
// process's environment.
func environ(m map[string]string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		env = append(env, k+"="+m[k])
	}
	return env
}
