// Package fake implements a sandbox driver in memory, for tests. Files are byte slices, and
// commands are Go functions that the test registers; there are no other programs and no shell. The
// driver passes the conformance tests of the real drivers (package sandboxtest), works inside
// testing/synctest, and can be told to fail or to be slow.
//
//	d := fake.New(fake.Options{Commands: map[string]fake.Func{"greet": func(ctx context.Context, p *fake.Proc) int {
//		fmt.Fprintln(p.Stdout, "hello", p.Args[1])
//		return 0
//	}}})
//
// A test that needs a real shell uses package local.
package fake

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Func implements a command and returns its exit code. To kill a command, its context is
// canceled. A function that has not returned a second later is abandoned: its further output is
// dropped, and [Driver.CheckAllClosed] reports it.
type Func func(ctx context.Context, p *Proc) int

// Options of New. The zero value is a driver without commands that never fails.
type Options struct {
	// Commands are the programs in the PATH of every sandbox, by name.
	Commands map[string]Func

	// FailCreate is the number of calls of Create that fail with ErrInjected before calls succeed.
	FailCreate int
	// FailClose is the number of sandboxes whose Close returns ErrInjected, each time it is called.
	// They are closed all the same.
	FailClose int

	// The minimum duration of calls.
	SlowCreate, SlowClose time.Duration
}

// ErrInjected is wrapped by the errors of FailCreate and FailClose.
var ErrInjected = errors.New("failure injected")

// A Driver makes sandboxes in memory.
type Driver struct {
	opts  Options
	next  atomic.Int64 // number of the last sandbox
	stuck atomic.Int64 // commands that were abandoned

	mu                    sync.Mutex // guards the fields below
	failCreate, failClose int        // failures left
	live                  map[string]*Sandbox
	created, peak         int
}

var _ sandbox.Driver = (*Driver)(nil)

// New makes a driver.
func New(o Options) *Driver {
	return &Driver{opts: o, failCreate: o.FailCreate, failClose: o.FailClose, live: map[string]*Sandbox{}}
}

// inject returns ErrInjected while there are failures left.
func (d *Driver) inject(left *int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *left == 0 {
		return nil
	}
	*left--
	return ErrInjected
}

func (d *Driver) Name() string                { return "fake" }
func (d *Driver) Probe(context.Context) error { return nil }
func (d *Driver) Describe() map[string]string {
	return map[string]string{"isolation": "none needed: commands are functions", "memory": "as far as commands tell"}
}

// Prepare accepts every image. Sandboxes do not get its files.
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
	switch {
	case !s.Network.None():
		what = "a network"
	case s.Platform != "" && !strings.HasPrefix(s.Platform, "linux/"):
		what = "platform " + s.Platform
	case len(s.Services) > 0:
		what = "services"
	case len(s.Volumes) > 0:
		what = "volumes"
	case s.Trace:
		what = "tracing of commands"
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
	if err := d.inject(&d.failCreate); err != nil {
		return fail(err)
	}
	s := &Sandbox{driver: d, id: "fake-" + strconv.FormatInt(d.next.Add(1), 10), spec: spec}
	s.files.max = spec.Disk
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

// wait waits for the duration t, or until ctx ends, whose cause it returns.
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

// Live returns the number of open sandboxes, Peak its maximum so far, and Created the number of all
// sandboxes ever made.
func (d *Driver) Live() int    { d.mu.Lock(); defer d.mu.Unlock(); return len(d.live) }
func (d *Driver) Peak() int    { d.mu.Lock(); defer d.mu.Unlock(); return d.peak }
func (d *Driver) Created() int { d.mu.Lock(); defer d.mu.Unlock(); return d.created }

// TB is the part of testing.TB that CheckAllClosed uses.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// CheckAllClosed reports to t each sandbox that is still open, and how many commands did not return
// after they were killed.
func (d *Driver) CheckAllClosed(t TB) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, s := range d.live {
		t.Errorf("sandbox %s of %+v is still open", id, s.spec.Owner)
	}
	if n := d.stuck.Load(); n > 0 {
		t.Errorf("%d commands did not return after they were killed", n)
	}
}
