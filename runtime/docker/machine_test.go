package docker

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest"
)

var helper = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "helper")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "helper")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", out,
		"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest/helper")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=linux")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.New(string(text))
	}
	return os.ReadFile(out)
})

const helperPath = "/" + sandboxtest.HelperPath

// helped is a spec whose image has the helper, and what changes say (in the Dockerfile's language).
func helped(t testing.TB, d *Driver, changes ...string) sandbox.Spec {
	t.Helper()
	b, err := helper()
	if err != nil {
		t.Fatal(err)
	}
	ref := importImage(t, api(t, d), map[string][]byte{sandboxtest.HelperPath: b}, changes...)
	return sandbox.Spec{Owner: sandbox.Self(), Image: sandbox.Image{Ref: ref}, Memory: 256 << 20, Pids: 128}
}

// run runs the helper and returns what it printed and what became of it.
func run(t testing.TB, sb sandbox.Sandbox, args ...string) (string, sandbox.Exit) {
	t.Helper()
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	x, err := sb.Exec(ctx, sandbox.Command{Args: append([]string{helperPath}, args...), Stdout: &out})
	if err != nil {
		t.Fatalf("helper %q: %v", args, err)
	}
	return out.String(), x
}

// What an image says about user, folder, environment and ENTRYPOINT holds for commands, and a spec
// overrides it.
func TestImageConfig(t *testing.T) {
	d := require(t)
	spec := helped(t, d, "ENV FROM_IMAGE=image BOTH=image GODEBUG=panicnil=1 LD_PRELOAD=/x", "USER 1000:1001",
		"WORKDIR /job/here", `ENTRYPOINT ["`+helperPath+`"]`, `CMD ["env", ",", "id", ",", "cwd"]`,
		`HEALTHCHECK --interval=1s CMD ["`+helperPath+`", "exit", "0"]`)
	spec.Env = map[string]string{"BOTH": "spec"}
	sb := open(t, d, spec)
	for _, sees := range []string{
		first(run(t, sb, "env", ",", "id", ",", "cwd")),
		wantLogs(t, sb, "/job/here\n"),
	} {
		for _, want := range []string{"FROM_IMAGE=image\n", "BOTH=spec\n", "GODEBUG=panicnil=1\n", "HOSTNAME=sandbox\n",
			"1000:1001\n", "/job/here\n"} {
			if !strings.Contains("\n"+sees, "\n"+want) {
				t.Errorf("lacks %q: %q", want, sees)
			}
		}
	}
	spec.User, spec.Dir, spec.Cmd = "0", "/other", []string{"echo", "other"}
	sb = open(t, d, spec)
	if got := first(run(t, sb, "id", ",", "cwd")); got != "0:0\n/other\n" {
		t.Errorf("overridden: %q", got)
	}
	if got := wantLogs(t, sb, "other\n"); got != "other\n" {
		t.Errorf("ENTRYPOINT with another CMD printed %q", got)
	}
	spec.Entrypoint = []string{} // reset, as in a compose file
	spec.Cmd = nil
	sb = open(t, d, spec)
	if l := sb.(sandbox.Logger).Logs(); len(l) != 0 {
		t.Errorf("without an ENTRYPOINT: %q", l)
	}
}

func first(s string, _ sandbox.Exit) string { return s }

// wantLogs waits until ENTRYPOINT has printed something that ends so.
func wantLogs(t testing.TB, sb sandbox.Sandbox, end string) string {
	t.Helper()
	l, _ := sandbox.As[sandbox.Logger](sb)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got := string(l.Logs())
		if strings.HasSuffix(got, end) {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("ENTRYPOINT printed %q, want %q at its end", got, end)
		}
	}
}

// An image that has a CMD only starts nothing in a main machine, and is what a service runs.
func TestCmdOnly(t *testing.T) {
	d := require(t)
	spec := helped(t, d, `CMD ["`+helperPath+`", "listen", "4400"]`)
	sb := open(t, d, spec)
	if _, x := run(t, sb, "dial", "4400", "x"); x.Code == 0 {
		t.Error("main runs its image's CMD")
	}
	side := spec
	side.Health = &sandbox.Health{Test: []string{"CMD", helperPath, "dial", "4400", "x"},
		Interval: 50 * time.Millisecond, Retries: 200}
	spec.Services = map[string]sandbox.Spec{"db": side}
	sb = open(t, d, spec)
	if got, _ := run(t, sb, "dial", "4400", "hello"); got != "HELLO\n" {
		t.Errorf("from the service: %q", got)
	}
}

// What a command is, seen from inside: no privileges beyond the kept ones, none to be had, nothing
// of the host.
func TestPrivileges(t *testing.T) {
	d := require(t)
	status := func(sb sandbox.Sandbox) map[string]string {
		m := map[string]string{}
		for line := range strings.Lines(first(run(t, sb, "cat", "/proc/self/status"))) {
			k, v, _ := strings.Cut(line, ":")
			m[k] = strings.TrimSpace(v)
		}
		return m
	}
	spec := helped(t, d)
	for _, rewire := range []bool{false, true} {
		spec.Rewire = rewire
		sb := open(t, d, spec)
		got := status(sb)
		// CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID NET_BIND_SERVICE SYS_CHROOT SETFCAP
		const kept = "00000000800404fb"
		for _, set := range []string{"CapEff", "CapPrm", "CapBnd"} {
			if got[set] != kept {
				t.Errorf("rewire %v: %s is %s, want %s", rewire, set, got[set], kept)
			}
		}
		if got["CapAmb"] != "0000000000000000" || got["NoNewPrivs"] != "1" || got["Seccomp"] != "2" {
			t.Errorf("ambient %s, no new privileges %s, seccomp %s", got["CapAmb"], got["NoNewPrivs"], got["Seccomp"])
		}
	}
	spec.Setuid = true
	if got := status(open(t, d, spec)); got["NoNewPrivs"] != "0" {
		t.Errorf("where setuid programs may work: no new privileges %s", got["NoNewPrivs"])
	}
	spec.Setuid, spec.Rewire = false, false
	sb := open(t, d, spec)
	home, _ := os.UserHomeDir()
	host, _ := os.Hostname()
	for _, name := range []string{"/proc/self/mountinfo", "/etc/resolv.conf", "/etc/hosts", "/proc/self/cgroup",
		"/etc/hostname"} {
		got := first(run(t, sb, "cat", name))
		for _, bad := range []string{home + "/", host, os.TempDir()} {
			if strings.Contains(got, bad) {
				t.Errorf("%s shows %q: %q", name, bad, got)
			}
		}
	}
	if got := first(run(t, sb, "cat", "/etc/hostname")); got != "sandbox\n" {
		t.Errorf("/etc/hostname: %q", got)
	}
	// Our program can be used by nobody as something else, nor be changed.
	if _, x := run(t, sb, "write", toolPath, "x"); x.Code == 0 {
		t.Error("the executor was written to")
	}
}

func TestFileSystems(t *testing.T) {
	d := require(t)
	spec := helped(t, d)
	spec.Tmpfs = map[string]int64{"/scratch": 1 << 20}
	spec.Shm = 2 << 20
	sb := open(t, d, spec)
	for _, dir := range []string{"/scratch", "/dev/shm"} {
		if _, x := run(t, sb, "fill", dir+"/little", "100000"); x.Code != 0 {
			t.Errorf("%s: a little: %+v", dir, x)
		}
		if _, x := run(t, sb, "fill", dir+"/much", "10000000"); x.Code != 28 {
			t.Errorf("%s: too much: %+v", dir, x)
		}
	}
}

// What is over a disk limit that the engine cannot keep loses its commands.
func TestDiskWatch(t *testing.T) {
	d := require(t)
	spec := helped(t, d)
	spec.Disk = 8 << 20
	sb := open(t, d, spec)
	if d.about.quota() {
		t.Skip("the engine limits disks itself")
	}
	run(t, sb, "pattern", "/much", "20000000")
	done := make(chan sandbox.Exit, 1)
	go func() {
		x, err := sb.Exec(context.Background(),
			sandbox.Command{Args: []string{helperPath, "ignore", ",", "hold", "/tmp/a"}})
		if err != nil {
			t.Error(err)
		}
		done <- x
	}()
	for held := false; !held; {
		_, x := run(t, sb, "held", "/tmp/a")
		held = x.Code == 0
	}
	d.disk.look(map[string]*box{sb.ID(): sb.(*box)})
	if x := <-done; x.Signal != "SIGKILL" {
		t.Errorf("a command in a sandbox that has written too much: %+v", x)
	}
	st, err := sb.(*box).Stats(context.Background())
	if err != nil || st.Disk == nil || *st.Disk < 20000000 {
		t.Errorf("Stats: %+v, %v", st, err)
	}
}

// Where a mount cannot work the executor is copied, which the first container finds out.
func TestCopied(t *testing.T) {
	d := require(t)
	spec := helped(t, d)
	p, err := d.tool.get(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	p.path = filepath.Join("/proc/self/cwd", "machine_test.go") // a file for us, and none for the engine
	spec.Services = map[string]sandbox.Spec{
		"side": func() sandbox.Spec { s := spec; s.Entrypoint = []string{helperPath, "listen", "4401"}; return s }()}
	sb := open(t, d, spec)
	if got := first(run(t, sb, "echo", "copied")); got != "copied\n" {
		t.Errorf("got %q", got)
	}
	if d.tool.mounts() {
		t.Error("it was mounted")
	}
	if got := d.Describe()["executor"]; !strings.Contains(got, "copied") {
		t.Errorf("Describe says %q", got)
	}
}

// A machine whose owner falls silent ends itself.
func TestOrphan(t *testing.T) {
	d := require(t)
	spec := helped(t, d)
	spec.Orphan = 5 * time.Second // its owner speaks three times as often, if a busy machine lets it
	sb := open(t, d, spec)
	b := sb.(*box)
	time.Sleep(spec.Orphan + time.Second) // as long as its owner lives, nothing happens
	if got := first(run(t, sb, "echo", "fine")); got != "fine\n" {
		t.Fatalf("got %q", got)
	}
	b.disconnect()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := d.running(context.Background(), api(t, d), sb.ID())
		if errors.Is(err, sandbox.ErrGone) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still runs (%v)", err)
		}
	}
	if _, err := New(Options{State: d.state}).Find(context.Background(), sb.ID()); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("Find: %v", err)
	}
}
