package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/executor/embed"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("EVALRUN_TEST_INIT"); path != "" {
		asInit(path)
	}
	Main()
	os.Exit(m.Run())
}

// asInit is process 1 of fresh namespaces, on its way to become the executor of a container.
func asInit(path string) {
	must := func(err error) {
		if err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(3)
		}
	}
	if os.Getpid() != 1 {
		must(errors.New("not in namespaces of its own"))
	}
	must(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	must(syscall.Mount("proc", "/proc", "proc", 0, ""))
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	must(err)
	must(syscall.Mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777"))
	must(syscall.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"))
	must(syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", fd), []string{path, Container}, []string{"GOMAXPROCS=1"}))
}

const patience = 5 * time.Minute

// A machine is an executor over two pipes, as in a container, in namespaces of its own. Hosts come
// and go.
type machine struct {
	t       *testing.T
	in, out *os.File // our ends
	cmd     *exec.Cmd
	errs    bytes.Buffer
	ended   chan struct{}
	key     []byte
}

func boot(t *testing.T) *machine {
	t.Helper()
	bin := embed.Init(runtime.GOARCH)
	if bin == nil || os.Getenv("EVALRUN_EXECUTOR") == "self" {
		var err error
		if bin, err = os.ReadFile("/proc/self/exe"); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "evalrun-init")
	if err := os.WriteFile(path, bin, 0o755); err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, ended: make(chan struct{}), key: NewKey()}
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m.in, m.out = inW, outR
	m.cmd = exec.Command("/proc/self/exe")
	m.cmd.Env = append(os.Environ(), "EVALRUN_TEST_INIT="+path)
	m.cmd.Stdin, m.cmd.Stdout, m.cmd.Stderr = inR, outW, &m.errs
	uid := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	gid := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	m.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		UidMappings: uid, GidMappings: gid, Pdeathsig: syscall.SIGKILL,
	}
	err = m.cmd.Start()
	inR.Close()
	outW.Close()
	if err != nil {
		if errors.Is(err, syscall.EPERM) && os.Getenv("EVALRUN_TEST_LOCAL") == "" {
			t.Skip("needs user namespaces: ", err)
		}
		t.Fatal(err)
	}
	go func() { m.cmd.Wait(); close(m.ended) }()
	t.Cleanup(func() {
		m.cmd.Process.Kill()
		<-m.ended
		m.in.Close()
		m.out.Close()
		if m.errs.Len() > 0 {
			t.Errorf("the executor said:\n%s", &m.errs)
		}
	})
	return m
}

// A hostEnd is the channel as one host has it. When that ends, the pipes stay.
type hostEnd struct {
	m      *machine
	mu     sync.Mutex // of Read: after Close nothing is taken from the pipe
	closed atomic.Bool
	deaf   atomic.Bool // see deafen
}

func (h *hostEnd) Read(p []byte) (int, error) {
	for !h.closed.Load() {
		if h.deaf.Load() {
			time.Sleep(time.Millisecond)
			continue
		}
		n, err := h.read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	return 0, io.ErrClosedPipe
}

func (h *hostEnd) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	h.m.out.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
	return h.m.out.Read(p)
}

func (h *hostEnd) Write(p []byte) (int, error) {
	if h.closed.Load() {
		return 0, io.ErrClosedPipe
	}
	return h.m.in.Write(p)
}

// deafen lets it read no more, like an engine whose client has stopped.
func (h *hostEnd) deafen() {
	h.deaf.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
}

func (h *hostEnd) Close() error {
	h.closed.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	return nil
}

// first is the machine's first host.
func (m *machine) first(cfg Config) (*Client, *hostEnd) {
	m.t.Helper()
	h := &hostEnd{m: m}
	cfg.Key = m.key
	cfg.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, cfg.Env...)
	c, err := New(m.ctx(), h, Options{Driver: "test", ID: "machine", Config: cfg})
	if err != nil {
		m.t.Fatalf("%v\n%s", err, &m.errs)
	}
	m.t.Cleanup(func() { c.Close() })
	return c, h
}

// next is another host.
func (m *machine) next() (*Client, *hostEnd) {
	m.t.Helper()
	h := &hostEnd{m: m}
	c, err := Reattach(m.ctx(), h, Options{Driver: "test", ID: "machine", Config: Config{Key: m.key}})
	if err != nil {
		m.t.Fatalf("%v\n%s", err, &m.errs)
	}
	m.t.Cleanup(func() { c.Close() })
	return c, h
}

func (m *machine) ctx() context.Context {
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	m.t.Cleanup(cancel)
	return ctx
}

func sh(t *testing.T, c *Client, script string) (string, sandbox.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	x, err := c.Exec(ctx, sandbox.Command{Args: []string{"/bin/sh", "-c", script}, Stdout: &out, Timeout: patience / 2})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out.String(), x
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, patience)
		}
	}
}
