// Package fake is a driver whose machines are a few values in memory: files are bytes, commands are
// Go functions. It keeps the contract of package sandbox as the real drivers do (sandboxtest runs
// over it), costs next to nothing, works inside testing/synctest, and can be told to fail.
//
//	d := fake.New(fake.Options{Commands: map[string]fake.Func{"greet": func(ctx context.Context, p *fake.Proc) int {
//		fmt.Fprintln(p.Stdout, "hello", p.Args[1])
//		return 0
//	}}})
//
// A small shell (bash or sh, -c) and a handful of programs (echo, cat, sleep …) are built in, for
// tests and demonstrations.
package fake

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Func is a command. It returns its exit code, soon after ctx ends: that is how it is killed. One
// that does not is left behind after a second, what it writes from then on is dropped, and
// [Driver.CheckAllClosed] tells.
type Func func(ctx context.Context, p *Proc) int

// Options of New. The zero value is a driver that does what it is asked.
type Options struct {
	// Commands are programs that stand in every sandbox's PATH; a nil one takes a built-in away.
	Commands map[string]Func
	// Images say what is in the sandboxes of an image reference, below "/"; "" is the default
	// image.
	Images map[string]fs.FS
	// Networks lets specs ask for a network, which then is not there. Without it they are
	// Unsupported.
	Networks bool

	// FailCreate and FailExec are how many calls fail with ErrInjected before they work.
	FailCreate, FailExec int
	// FailClose is how many sandboxes return ErrInjected from every Close, though they are gone.
	FailClose int
	// OOM is how many commands are killed for passing the memory limit, as they start.
	OOM int

	// OnCreate and OnExec are called, one call at a time, before each Create and Exec, which fail
	// with their errors.
	OnCreate func(spec sandbox.Spec) error
	OnExec   func(sb *Sandbox, c sandbox.Command) error

	// The least time that calls take.
	SlowCreate, SlowExec, SlowClose time.Duration
}

// ErrInjected is what the failures that were asked for wrap.
var ErrInjected = errors.New("failure injected")

// countdown fails while n lasts.
func countdown(n *int) error {
	if *n <= 0 {
		return nil
	}
	*n--
	return ErrInjected
}

// A Driver makes sandboxes in memory.
type Driver struct {
	opts     Options // its counters go down, under hooks
	commands map[string]Func
	inline   map[string]bool // the shell runs them itself, as a real one does

	hooks   sync.Mutex // held while OnCreate and OnExec run
	hooked  bool       // something is to be done before an Exec
	fragile bool       // some Close is to fail

	mu            sync.Mutex
	live          map[string]*Sandbox
	created, peak int
	next          atomic.Int64
	stuck         atomic.Int64
}

var _ sandbox.Driver = (*Driver)(nil)

// New makes a driver.
func New(o Options) *Driver {
	d := &Driver{opts: o, commands: make(map[string]Func, len(builtin)), inline: map[string]bool{},
		live: map[string]*Sandbox{}}
	maps.Copy(d.commands, builtin)
	for _, name := range []string{"true", "false", "echo", "printf", "test", "[", "pwd"} {
		d.inline[name] = true
	}
	for name, f := range o.Commands {
		d.commands[name], d.inline[name] = f, false
	}
	d.hooked = o.OnExec != nil || o.FailExec > 0 || o.OOM > 0
	d.fragile = o.FailClose > 0
	return d
}

func (d *Driver) Name() string                { return "fake" }
func (d *Driver) Probe(context.Context) error { return nil }
func (d *Driver) Describe() map[string]string {
	return map[string]string{"isolation": "none needed: commands are functions", "memory": "as far as commands tell"}
}

// Prepare knows every image.
func (d *Driver) Prepare(ctx context.Context, img sandbox.Image) (string, error) {
	if ctx.Err() != nil {
		return "", &sandbox.Error{Op: "prepare", Err: context.Cause(ctx)}
	}
	if img.IsZero() {
		return "", nil
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(img.Ref+"\x00"+img.Dockerfile))), nil
}

func (d *Driver) supports(s sandbox.Spec) error {
	what := ""
	switch n := s.Network.Mode; {
	case n != "" && n != "none" && n != "public" && n != "allow":
		what = fmt.Sprintf("network mode %q", n)
	case !s.Network.None() && !d.opts.Networks:
		what = "a network"
	case s.Platform != "" && !strings.HasPrefix(s.Platform, "linux/"):
		what = "platform " + s.Platform
	case len(s.Services) > 0:
		what = "services"
	case len(s.Volumes) > 0:
		what = "volumes"
	default:
		return nil
	}
	return &sandbox.Unsupported{Driver: d.Name(), What: what}
}

func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	fail := func(err error) (sandbox.Sandbox, error) { return nil, &sandbox.Error{Op: "create", Err: err} }
	if err := d.supports(spec); err != nil {
		return nil, err
	}
	spec.Owner = spec.Owner.OrSelf()
	if err := wait(ctx, d.opts.SlowCreate); err != nil {
		return fail(err)
	}
	if err := d.mayCreate(spec); err != nil {
		return fail(err)
	}
	s := &Sandbox{driver: d, id: "fake-" + strconv.FormatInt(d.next.Add(1), 10), spec: spec}
	s.files.max = spec.Disk
	if img := d.opts.Images[spec.Image.Ref]; img != nil {
		if err := s.put(ctx, "/", img); err != nil {
			return fail(err)
		}
	}
	if spec.Dir != "" {
		if err := s.files.mkdirAll(spec.Dir, 0o755); err != nil {
			return fail(err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live[s.id] = s
	d.created++
	d.peak = max(d.peak, len(d.live))
	return s, nil
}

// mayCreate counts a failure that was asked for, and asks the hook.
func (d *Driver) mayCreate(spec sandbox.Spec) error {
	d.hooks.Lock()
	defer d.hooks.Unlock()
	if err := countdown(&d.opts.FailCreate); err != nil || d.opts.OnCreate == nil {
		return err
	}
	return d.opts.OnCreate(spec)
}

// wait waits for t, or returns the cause of ctx's end.
func wait(ctx context.Context, t time.Duration) error {
	if ctx.Err() == nil && t > 0 {
		timer := time.NewTimer(t)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (d *Driver) Find(ctx context.Context, id string) (sandbox.Sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.live[id]; s != nil {
		return s, nil
	}
	return nil, &sandbox.Error{Op: "find", ID: id, Err: sandbox.ErrGone}
}

func (d *Driver) Reap(ctx context.Context, alive func(sandbox.Owner) bool) (int, error) {
	var dead []*Sandbox
	d.mu.Lock()
	for _, s := range d.live {
		if !alive(s.spec.Owner) {
			dead = append(dead, s)
		}
	}
	d.mu.Unlock()
	var errs []error
	for _, s := range dead {
		errs = append(errs, s.Close())
	}
	return len(dead), errors.Join(errs...)
}

// Live is how many sandboxes there are now, Peak how many there were at most, Created how many in
// all.
func (d *Driver) Live() int    { d.mu.Lock(); defer d.mu.Unlock(); return len(d.live) }
func (d *Driver) Peak() int    { d.mu.Lock(); defer d.mu.Unlock(); return d.peak }
func (d *Driver) Created() int { d.mu.Lock(); defer d.mu.Unlock(); return d.created }

// TB is what CheckAllClosed needs of a test.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// CheckAllClosed tells t of every sandbox that is still open, and of commands that did not end when
// they were killed.
func (d *Driver) CheckAllClosed(t TB) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, s := range d.live {
		t.Errorf("sandbox %s of %+v is still open", id, s.spec.Owner)
	}
	if n := d.stuck.Load(); n > 0 {
		t.Errorf("%d commands went on after they were killed", n)
	}
}
