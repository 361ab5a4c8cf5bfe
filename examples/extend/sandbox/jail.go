// Package jail is a sandbox driver for evalrun. A machine is a process in namespaces of its own,
// with a tmpfs as its root and the host's programs in it, read-only. The program at its process 1
// is evalrun's executor, which runs commands, moves files and kills; the driver makes the machine
// around it (start.sh) and ends it.
//
// It has no network, no images and no services, and it limits the disk but neither memory nor
// processes. What a task needs beyond that is refused, and the task is skipped.
package jail

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

//go:embed start.sh
var script string

// A Driver makes machines. They end with the process that made them.
type Driver struct {
	mu   sync.Mutex
	live map[string]*machine
	made int
}

func New() *Driver { return &Driver{live: map[string]*machine{}} }

func (d *Driver) Name() string { return "jail" }

// Describe tells how limits are kept; plan and summary print it.
func (d *Driver) Describe() map[string]string {
	return map[string]string{"memory limit": "none", "process limit": "none", "processor limit": "none"}
}

// Probe makes a machine, to see whether it can.
func (d *Driver) Probe(ctx context.Context) error {
	sb, err := d.Create(ctx, sandbox.Spec{})
	if err != nil {
		return err
	}
	return sb.Close()
}

func (d *Driver) Prepare(_ context.Context, img sandbox.Image) (string, error) {
	if !img.IsZero() {
		return "", d.cannot("images")
	}
	return "", nil
}

func (d *Driver) cannot(what string) error { return &sandbox.Unsupported{Driver: d.Name(), What: what} }

// supports returns an error for what a machine of this driver cannot be.
func (d *Driver) supports(s sandbox.Spec) error {
	switch {
	case !s.Image.IsZero():
		return d.cannot("images")
	case s.Platform != "" || s.Image.Platform != "":
		return d.cannot("another platform")
	case len(s.Services) > 0:
		return d.cannot("services")
	case len(s.Entrypoint)+len(s.Cmd) > 0 || s.Health != nil:
		return d.cannot("a program that runs by itself")
	case len(s.Volumes)+len(s.Tmpfs) > 0:
		return d.cannot("volumes")
	case s.Setuid:
		return d.cannot("setuid programs")
	case s.Trace:
		return d.cannot("tracing of commands")
	case !s.Network.None():
		return d.cannot("network " + s.Network.Mode)
	}
	return nil
}

func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := d.supports(spec); err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.made++
	m := &machine{d: d, id: fmt.Sprintf("jail-%d-%d", os.Getpid(), d.made), owner: spec.Owner.OrSelf(),
		ended: make(chan struct{})}
	d.mu.Unlock()
	if err := m.start(ctx, spec); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, &sandbox.Error{Op: "create", ID: m.id, Err: err}
	}
	d.mu.Lock()
	d.live[m.id] = m
	d.mu.Unlock()
	return m, nil
}

// Find knows the machines of this process: others have ended with theirs.
func (d *Driver) Find(_ context.Context, id string) (sandbox.Sandbox, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.live[id]; m != nil {
		return m, nil
	}
	return nil, &sandbox.Error{Op: "find", ID: id, Err: sandbox.ErrGone}
}

func (d *Driver) Reap(_ context.Context, alive func(sandbox.Owner) bool) (int, error) {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.live))
	d.mu.Unlock()
	n := 0
	for _, m := range all {
		if !alive(m.owner) {
			m.Close()
			n++
		}
	}
	return n, nil
}

// A machine forwards to its executor what the executor can do.
type machine struct {
	d     *Driver
	id    string
	owner sandbox.Owner
	cmd   *exec.Cmd
	c     *executor.Client
	ended chan struct{} // closed when process 1 has ended
}

func (m *machine) start(ctx context.Context, spec sandbox.Spec) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	program, err := executor.Program(runtime.GOARCH)
	if err != nil {
		return err
	}
	ours, theirs, err := executor.Channel()
	if err != nil {
		return err
	}

	disk := cmp.Or(spec.Disk, 1<<30)
	m.cmd = exec.Command("/bin/sh", "-ec", script, "jail", fmt.Sprint(disk))
	m.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	m.cmd.Stdin = bytes.NewReader(program)
	m.cmd.ExtraFiles = []*os.File{theirs}
	m.cmd.Dir = "/"
	var said strings.Builder
	m.cmd.Stderr = &said
	// Root inside is nobody outside, or whoever runs evalrun.
	uid, gid, root := os.Geteuid(), os.Getegid(), os.Geteuid() == 0
	if root {
		uid, gid = 65534, 65534
	}
	m.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET |
			syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings:                []syscall.SysProcIDMap{{HostID: uid, Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{HostID: gid, Size: 1}},
		GidMappingsEnableSetgroups: root,
		Credential:                 &syscall.Credential{NoSetGroups: !root},
	}
	err = m.cmd.Start()
	theirs.Close() // so that ours ends when the machine does
	if err != nil {
		ours.Close()
		return err
	}
	go func() {
		defer close(m.ended)
		m.cmd.Wait()
	}()
	m.c, err = executor.New(ctx, ours, executor.Options{
		Driver: m.d.Name(), ID: m.id, Disk: true, Gone: m.gone, Hung: m.hung,
		Config: executor.Config{Env: environ(spec.Env), Dir: spec.Dir, User: spec.User, OnlyUID: true,
			Orphan: spec.Orphan, Drop: true},
	})
	if err != nil {
		m.kill()
		if text := strings.TrimSpace(said.String()); text != "" { // of start.sh
			err = fmt.Errorf("%w (%s)", err, text)
		}
	}
	return err
}

func environ(own map[string]string) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	for k, v := range own {
		env = append(env, k+"="+v)
	}
	return env
}

// gone says why the executor no longer answers.
func (m *machine) gone() error { return fmt.Errorf("%w: its process 1 has ended", sandbox.ErrGone) }

// hung ends a machine whose executor does not answer.
func (m *machine) hung(context.Context) string {
	threads := executor.Threads(m.cmd.Process.Pid)
	m.kill()
	return threads
}

// kill ends process 1, and so all others in its namespaces, and waits for it.
func (m *machine) kill() {
	m.cmd.Process.Kill()
	<-m.ended
}

func (m *machine) ID() string                 { return m.id }
func (m *machine) Executor() *executor.Client { return m.c }

func (m *machine) Exec(ctx context.Context, c sandbox.Command) (sandbox.Exit, error) {
	return m.c.Exec(ctx, c)
}
func (m *machine) Put(ctx context.Context, dir string, src fs.FS) error {
	return m.c.Put(ctx, dir, src)
}
func (m *machine) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return m.c.Get(ctx, name)
}
func (m *machine) KillAll(ctx context.Context) error { return m.c.KillAll(ctx) }

// Abilities: ports inside, and what is used.
func (m *machine) Dial(ctx context.Context, port int) (net.Conn, error) { return m.c.Dial(ctx, port) }
func (m *machine) Listen(ctx context.Context, port int) (net.Listener, error) {
	return m.c.Listen(ctx, port)
}
func (m *machine) Stats(ctx context.Context) (sandbox.Stats, error) { return m.c.Stats(ctx) }

// Close may be called again, and by several goroutines.
func (m *machine) Close() error {
	m.c.Close()
	m.kill()
	m.d.mu.Lock()
	delete(m.d.live, m.id)
	m.d.mu.Unlock()
	return nil
}
