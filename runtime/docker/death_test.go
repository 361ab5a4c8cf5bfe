package docker

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A daemon is a docker engine of the test's own, which may die.
type daemon struct {
	dir        string
	args       []string
	cmd        *exec.Cmd
	containerd *exec.Cmd // what runs its containers; it outlives the engine
	log        bytes.Buffer
}

func (m *daemon) host() string { return "unix://" + filepath.Join(m.dir, "docker.sock") }

func startDaemon(t *testing.T, args ...string) *daemon {
	t.Helper()
	require(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start an engine")
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("/tmp", "evd") // sockets want short names
	if err != nil {
		t.Fatal(err)
	}
	m := &daemon{dir: dir, args: append([]string{
		"--data-root", dir + "/data", "--exec-root", dir + "/exec", "-H", "unix://" + dir + "/docker.sock", "--pidfile",
		dir + "/pid",
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
		"--log-level=warn",
		"--containerd", dir + "/exec/c.sock",
	}, args...)}
	conf := "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n"
	if err := os.WriteFile(dir+"/containerd.toml", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	m.containerd = exec.Command("containerd", "--config", dir+"/containerd.toml", "--root", dir+"/exec/root", "--state",
		dir+"/exec/state", "--address", dir+"/exec/c.sock")
	os.Mkdir(dir+"/exec", 0o700)
	if err := m.containerd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the engine said: %s", tailOf(m.log.String()))
		}
		m.end()
		m.containerd.Process.Kill()
		m.containerd.Wait()
		m.clear(t)
	})
	m.start(t)
	return m
}

func tailOf(s string) string { return s[max(0, len(s)-4000):] }

func (m *daemon) start(t *testing.T) {
	t.Helper()
	os.Remove(m.dir + "/pid")
	m.cmd = exec.Command("dockerd", m.args...)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	// Without a bridge of its own an engine removes docker0, so it must not see the one of this
	// machine's engine.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Cloneflags: syscall.CLONE_NEWNET}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := New(Options{Host: m.host()})
	defer d.Close()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = d.Probe(t.Context()); err == nil {
			needEmpty(t, api(t, d))
			return
		}
	}
	t.Fatalf("the engine does not come up: %v\n%s", err, tailOf(m.log.String()))
}

// kill is a sudden death.
func (m *daemon) kill() {
	m.cmd.Process.Kill()
	m.cmd.Wait()
}

// end is an orderly one.
func (m *daemon) end() {
	m.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { m.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		m.cmd.Process.Kill()
		<-done
	}
}

// clear ends what the engine has started: its containerd and what holds containers, by what their
// command lines name, and its mounts.
func (m *daemon) clear(t *testing.T) {
	for range 50 {
		n := 0
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			b, _ := os.ReadFile(f)
			if !strings.Contains(string(b), m.dir+"/exec") {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && pid != os.Getpid() && pid > 1 {
				syscall.Kill(pid, syscall.SIGKILL)
				n++
			}
		}
		if n == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], m.dir+"/") {
			syscall.Unmount(f[4], syscall.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(m.dir); err != nil {
		t.Log(err)
	}
}

// TestEngineDies kills the engine under a running command. Every call ends soon with an error of
// ours; when the engine is back the sandbox is gone for certain, and Reap leaves nothing.
func TestEngineDies(t *testing.T) {
	m := startDaemon(t)
	state := t.TempDir()
	os.Chmod(state, 0o700)
	d := New(Options{Host: m.host(), State: state})
	defer d.Close()
	spec := helped(t, d)
	spec.Volumes = []sandbox.Volume{{Name: "v", Path: "/v"}}
	sb := open2(t, d, spec)
	left := open2(t, d, spec)
	done := hang(t, sb)
	m.kill()
	err := soon(t, "Exec", done)
	var e *sandbox.Error
	if !errors.As(err, &e) {
		t.Errorf("Exec: %v, want a *sandbox.Error", err)
	}
	for what, call := range map[string]func() error{
		"Exec": func() error {
			_, err := sb.Exec(context.Background(), sandbox.Command{Args: []string{"x"}})
			return err
		},
		"Get":     func() error { _, err := sb.Get(context.Background(), "/tmp"); return err },
		"KillAll": func() error { return sb.KillAll(context.Background()) },
		"Create":  func() error { _, err := d.Create(context.Background(), spec); return err },
		"Find": func() error {
			_, err := New(Options{Host: m.host(), State: state}).Find(context.Background(), sb.ID())
			return err
		},
		"Reap": func() error {
			_, err := d.Reap(context.Background(), func(sandbox.Owner) bool { return true })
			return err
		},
	} {
		done := make(chan error, 1)
		go func() { done <- call() }()
		if err := soon(t, what, done); err == nil || errors.Is(err, sandbox.ErrGone) {
			t.Errorf("%s without an engine: %v, want an error that is not definite", what, err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- sb.Close() }()
	if err := soon(t, "Close", closed); err == nil {
		t.Error("Close without an engine: no error")
	}
	m.start(t)
	// The other one was not closed: it is known now to be gone.
	if _, err := left.Exec(context.Background(), sandbox.Command{Args: []string{"x"}}); !errors.Is(err,
		sandbox.ErrGone) {
		t.Errorf("Exec with the engine back: %v, want %v", err, sandbox.ErrGone)
	}
	if err := left.Close(); err != nil {
		t.Errorf("Close with the engine back: %v", err)
	}
	if n, err := d.Reap(context.Background(), func(sandbox.Owner) bool { return true }); n != 1 || err != nil {
		t.Errorf("Reap: %d, %v; want the one that could not be closed", n, err)
	}
	if got := mine(t, d); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
	// And it works as before.
	sb = open2(t, d, spec)
	if got := first(run(t, sb, "echo", "again")); got != "again\n" {
		t.Errorf("got %q", got)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
}

// TestEngineRestarts: where containers outlive the engine, one is taken up again when it is back.
func TestEngineRestarts(t *testing.T) {
	m := startDaemon(t, "--live-restore")
	state := t.TempDir()
	os.Chmod(state, 0o700)
	d := New(Options{Host: m.host(), State: state})
	defer d.Close()
	sb := open2(t, d, helped(t, d))
	run(t, sb, "write", "/tmp/f", "kept")
	m.kill()
	m.start(t)
	again, err := New(Options{Host: m.host(), State: state}).Find(context.Background(), sb.ID())
	if err != nil {
		t.Fatalf("Find: %v", err)
	}
	if got := first(run(t, again, "cat", "/tmp/f")); got != "kept" {
		t.Errorf("got %q", got)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if got := mine(t, d); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// open2 makes a sandbox whose end is the test's business.
func open2(t *testing.T, d *Driver, spec sandbox.Spec) sandbox.Sandbox {
	t.Helper()
	sb, err := d.Create(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}
