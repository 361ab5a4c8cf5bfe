package local

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A sandbox with an Orphan time outlives its evalrun. Its executor has a listening socket, whose
// path is beside the sandbox's file in the state directory: nobody inside can reach it, and a
// connection has to begin with a token made with the key in that file. Its spawner stays as its
// parent and removes what it has outside when it ends.

// socket opens the socket of a box for the processes that find it.
func (b *box) socket() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "hosts")
	err = b.d.atSocket(b.id, func(a *unix.SockaddrUnix) error { return unix.Bind(fd, a) })
	if err == nil {
		err = unix.Listen(fd, 8)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// atSocket calls f with the address of a sandbox's socket. The address of a socket is short, and the
// path of a state directory may be long, so the address goes through a descriptor of the directory.
func (d *Driver) atSocket(id string, f func(*unix.SockaddrUnix) error) error {
	dir, err := unix.Open(d.state, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return f(&unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, id+socketSuffix)})
}

// dial connects to a sandbox's socket. It does not block: there is room for the connections of
// several processes.
func (d *Driver) dial(id string) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "executor")
	defer f.Close()
	if err := d.atSocket(id, func(a *unix.SockaddrUnix) error { return unix.Connect(fd, a) }); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// Find returns a sandbox of this process, or reattaches to one that another process has created
// with an Orphan time. Those without one end with their process, so they are gone.
func (d *Driver) Find(ctx context.Context, id string) (sandbox.Sandbox, error) {
	d.mu.Lock()
	b := d.live[id]
	d.mu.Unlock()
	if b != nil {
		select {
		case <-b.p.ended:
		case <-b.c.Done():
		default:
			return b, nil
		}
	}
	b, err := d.find(ctx, id)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if e := (*sandbox.Error)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return nil, &sandbox.Error{Op: "find", ID: id, Err: err}
	}
	return b, nil
}

// reattachLimit is how long an executor may take to answer its new owner.
const reattachLimit = 30 * time.Second

func (d *Driver) find(ctx context.Context, id string) (*box, error) {
	gone := func(why string) error { return fmt.Errorf("%w: %s", sandbox.ErrGone, why) }
	if strings.Trim(id, "0123456789abcdef") != "" || d.plain {
		return nil, gone("no sandbox of this driver has such a name")
	}
	e, err := d.readState(id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, gone("it has ended")
	case err != nil:
		return nil, err
	case e.Key == "":
		return nil, gone("it ended with the evalrun that created it")
	}
	key, err := hex.DecodeString(e.Key)
	if err != nil {
		return nil, err
	}
	conn, err := d.dial(id)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, gone("its executor has ended")
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to its executor: %w", err)
	}
	b := &box{d: d, id: id, owner: e.Owner, state: e, closed: make(chan struct{}), cg: foundGroups(e.Groups)}
	if b.p, err = findProcess(id); err != nil {
		conn.Close()
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, reattachLimit, errors.New("its executor does not answer"))
	defer cancel()
	b.c, err = executor.Reattach(ctx, conn, executor.Options{
		Driver: d.Name(), ID: id, Config: executor.Config{Key: key}, Disk: true, Gone: b.gone, Hung: b.hung,
		Grace: d.grace,
	})
	if err != nil {
		return nil, err
	}
	if len(e.Entry) > 0 {
		b.own = b.c.Start(sandbox.Command{Args: e.Entry}) // the running one, or its result
	}
	if e.Gated {
		err = b.reopenGate(ctx)
	}
	if err == nil {
		b.owner.PID = 0
		b.owner = b.owner.OrSelf()
		b.state.Owner = b.owner
		err = b.updateState()
	}
	if err != nil {
		if b.gate != nil {
			b.gate.Close()
		}
		b.c.Close()
		return nil, err
	}
	d.mu.Lock()
	d.live[id] = b
	d.mu.Unlock()
	return b, nil
}

// reopenGate attaches a new gate with the policy that was in force: the old one has ended with its
// process. If that process is alive, it closes the network interface a moment after it has lost the
// sandbox.
func (b *box) reopenGate(ctx context.Context) error {
	for begun := time.Now(); ; {
		err := b.attach(ctx, b.state.Network)
		if err == nil || time.Since(begun) > retakeLimit {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

const retakeLimit = 3 * time.Second

// findProcess finds process 1 of a sandbox that another process has started.
func findProcess(id string) (*process, error) {
	for _, pid := range executors(id) {
		fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
		if err != nil {
			continue
		}
		if isFirst(pid, id) { // checked now that the descriptor holds the PID
			p := &process{pid: pid, fd: os.NewFile(uintptr(fd), "pidfd"), ended: make(chan struct{})}
			go p.await()
			return p, nil
		}
		unix.Close(fd)
	}
	return nil, fmt.Errorf("%w: its first process has ended", sandbox.ErrGone)
}

// isFirst reports whether a process of a sandbox is process 1 there.
func isFirst(pid int, id string) bool {
	if !isExecutor(pid, id) {
		return false
	}
	b, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "NSpid:"); ok {
			pids := strings.Fields(v)
			return len(pids) > 1 && pids[len(pids)-1] == "1"
		}
	}
	return false
}

// await waits until the process has ended.
func (p *process) await() {
	defer close(p.ended)
	defer p.fd.Close()
	if raw, err := p.fd.SyscallConn(); err == nil {
		raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 || err != nil && err != unix.EINTR
		})
	}
}

// foundGroups returns the control groups of a sandbox that another process has created. Kills of
// before count for no command of ours.
func foundGroups(dirs []string) *group {
	cg := &group{dirs: dirs}
	has := func(d, name string) bool {
		_, err := os.Lstat(filepath.Join(d, name))
		return err == nil
	}
	for _, d := range dirs {
		if has(d, "memory.usage_in_bytes") || has(d, "memory.current") {
			cg.mem = d
			for _, name := range []string{"memory.oom_control", "memory.events"} {
				if cg.oom == nil {
					cg.oom, _ = os.Open(filepath.Join(d, name))
				}
			}
		}
		if has(d, "cpu.stat") {
			cg.cpu = d
		}
	}
	cg.last = cg.oomKills()
	return cg
}
