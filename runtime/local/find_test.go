package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// long is a command that the test ends.
var long = sandbox.Command{ID: "long", Limit: 1000, Args: []string{"sh", "-c",
	"echo begun | tee -a /tmp/log; until [ -e /tmp/go ]; do sleep 0.05; done; echo ended | tee -a /tmp/log; exit 3"}}

// asHost is a process that creates sandboxes, or finds those whose IDs it is given, starts or awaits
// the long command in each, and waits to be killed.
func asHost() {
	fail := func(err error) {
		fmt.Println("error", err)
		os.Exit(1)
	}
	d := New()
	d.state = os.Getenv("EVALRUN_TEST_STATE")
	orphan, err := time.ParseDuration(os.Getenv("EVALRUN_TEST_ORPHAN"))
	if err != nil {
		fail(err)
	}
	ids := strings.Fields(os.Getenv("EVALRUN_TEST_HOST"))
	n, create := len(ids), false
	if number, err := strconv.Atoi(ids[0]); err == nil && n == 1 && number < 1000 {
		n, create = number, true
	}
	var made []string
	for i := range n {
		var sb sandbox.Sandbox
		if create {
			sb, err = d.Create(context.Background(), sandbox.Spec{Owner: sandbox.Self(), Orphan: orphan})
		} else {
			sb, err = d.Find(context.Background(), ids[i])
		}
		if err != nil {
			fail(err)
		}
		r, w := io.Pipe()
		c := long
		c.Stdout = w
		go sb.Exec(context.Background(), c)
		if create { // the output that was delivered once comes again when the command has ended
			if line, _ := bufio.NewReader(r).ReadString('\n'); line != "begun\n" {
				fail(fmt.Errorf("the command said %q", line))
			}
		}
		made = append(made, sb.ID())
	}
	fmt.Println("ready", strings.Join(made, " "))
	select {}
}

// A hostProcess is a process that runs asHost, in a process group of its own.
type hostProcess struct {
	t   *testing.T
	cmd *exec.Cmd
	ids []string
}

// startHost starts a process that creates n sandboxes, or finds the given ones.
func startHost(t *testing.T, d *Driver, orphan time.Duration, what string) *hostProcess {
	t.Helper()
	h := &hostProcess{t: t, cmd: exec.Command("/proc/self/exe")}
	h.cmd.Env = append(os.Environ(), "EVALRUN_TEST_HOST="+what, "EVALRUN_TEST_STATE="+d.state,
		"EVALRUN_TEST_ORPHAN="+orphan.String())
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.cmd.Stderr = os.Stderr
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.kill() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	f := strings.Fields(line)
	if len(f) < 2 || f[0] != "ready" {
		t.Fatalf("the host said %q", line)
	}
	h.ids = f[1:]
	return h
}

// kill kills its whole process group.
func (h *hostProcess) kill() {
	syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
	h.cmd.Wait()
}

// ownState gives a driver a state directory whose path is longer than the address of a socket.
func ownState(t *testing.T, d *Driver) {
	d.state = filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(d.state, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("EVALRUN_TEST_STATE", d.state)
}

// A sandbox survives two hosts that are killed with their process groups. Its command is executed
// once, its users belong to nobody else, and in the end nothing of it is left.
func TestFoundAfterKill(t *testing.T) {
	d := require(t)
	ownState(t, d)
	one := startHost(t, d, time.Hour, "1")
	id := one.ids[0]
	one.kill()
	two := startHost(t, d, time.Hour, id)
	two.kill()

	sb, err := d.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	if again, err := d.Find(t.Context(), id); err != nil || again != sb {
		t.Errorf("found again by the same driver: %v, %v", again, err)
	}
	e, err := d.readState(id)
	if err != nil || e.Owner.PID != os.Getpid() {
		t.Errorf("the owner is %+v, %v", e.Owner, err)
	}
	users := func(sb sandbox.Sandbox) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/uid_map", sb.(*box).p.pid))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	if other := create(t, d, sandbox.Spec{}); manyUsers() && users(other) == users(sb) {
		t.Errorf("another sandbox has the same users: %s", users(sb))
	}
	sh(t, sb, "touch /tmp/go")
	var out bytes.Buffer
	c := long
	c.Stdout = &out
	x, err := sb.Exec(t.Context(), c)
	if err != nil || x.Code != 3 || out.String() != "begun\nended\n" {
		t.Errorf("the long command: %+v, %v, output %q", x, err, out.String())
	}
	if log, _ := sh(t, sb, "cat /tmp/log"); log != "begun\nended\n" {
		t.Errorf("its log: %q", log)
	}
	if st, err := sb.(sandbox.Stater).Stats(t.Context()); err != nil ||
		findGroups().has("memory") != (st.MaxMemory != nil) {
		t.Errorf("stats: %+v, %v", st, err)
	}
	if len(remains(id)) == 0 {
		t.Error("a live sandbox has nothing outside: what would Reap go by?")
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if left := remains(id); len(left) > 0 || len(executors(id)) > 0 {
		t.Errorf("left: %q, processes %v", left, executors(id))
	}
	if _, err := d.Find(t.Context(), id); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("found after Close: %v", err)
	}
}

// One whose process 1 ends is cleared up by the spawner of the dead host.
func TestFoundEnds(t *testing.T) {
	d := require(t)
	ownState(t, d)
	h := startHost(t, d, time.Hour, "2")
	h.kill()
	sb, err := d.Find(t.Context(), h.ids[0])
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	for i, id := range h.ids { // a found one, and one that nobody has found
		for _, pid := range executors(id) {
			if isFirst(pid, id) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		eventually(t, fmt.Sprintf("nothing remains of sandbox %d", i), func() bool { return len(remains(id)) == 0 })
	}
	if _, err := sb.Exec(t.Context(), sandbox.Command{Args: []string{"true"}}); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("Exec: %v", err)
	}
	if _, err := d.Find(t.Context(), h.ids[1]); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("Find: %v", err)
	}
}

// A stopped host keeps its sandbox, and goes on. One that was replaced meanwhile has lost it.
func TestHostStopped(t *testing.T) {
	d := require(t)
	ownState(t, d)
	h := startHost(t, d, time.Hour, "1")
	h.cmd.Process.Signal(syscall.SIGSTOP)
	sb, err := d.Find(t.Context(), h.ids[0])
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	h.cmd.Process.Signal(syscall.SIGCONT)
	for range 20 { // it may say and read what it likes
		if out, _ := sh(t, sb, "echo mine"); out != "mine\n" {
			t.Fatalf("got %q", out)
		}
	}
	h.kill() // its spawner spares the sandbox
	if out, _ := sh(t, sb, "cat /tmp/log"); out != "begun\n" {
		t.Errorf("got %q", out)
	}
}

// Reap removes sandboxes of dead hosts, but not those of live ones.
func TestReapFound(t *testing.T) {
	d := require(t)
	ownState(t, d)
	one, two := startHost(t, d, time.Hour, "1"), startHost(t, d, time.Hour, "1")
	one.kill()
	alive := func(o sandbox.Owner) bool { _, ok := sandbox.Started(o.PID); return ok }
	if n, err := d.Reap(t.Context(), alive); n != 1 || err != nil {
		t.Errorf("Reap: %d, %v", n, err)
	}
	if left := remains(one.ids[0]); len(left) > 0 || len(executors(one.ids[0])) > 0 {
		t.Errorf("left: %q", left)
	}
	two.kill()
	sb, err := d.Find(t.Context(), two.ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
}

// A sandbox whose host is dead ends after its Orphan time, whatever the agent in it does.
func TestOrphanEnds(t *testing.T) {
	d := require(t)
	ownState(t, d)
	const orphan = 3 * time.Second
	h := startHost(t, d, orphan, "1")
	id := h.ids[0]
	h.kill()
	sb, err := d.Find(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	agent := `trap '' HUP INT TERM; cat /dev/zero >/dev/null & while :; do kill -CONT 1; kill -STOP $PPID
		echo x >/proc/1/fd/3; echo "evalrun resync " >/proc/$PPID/fd/3; sleep 0.1; done`
	go sb.Exec(context.Background(), sandbox.Command{ID: "agent", Args: []string{"sh", "-c", agent}, Stdout: io.Discard})
	eventually(t, "it runs", func() bool { out, _ := sh(t, sb, "ps ax | grep -c '[c]at /dev/zero'"); return out != "0\n" })
	last := time.Now()
	sb.(*box).c.Close() // as if this process had been killed
	eventually(t, "it ends", func() bool { return len(executors(id)) == 0 })
	if took := time.Since(last); took < orphan/2 {
		t.Errorf("ended after %v already", took)
	}
	eventually(t, "nothing remains", func() bool { return len(remains(id)) == 0 })
}

// Who connects without the key gets nothing, and keeps nobody out.
func TestSocketImpostors(t *testing.T) {
	d := require(t)
	ownState(t, d)
	sb := create(t, d, sandbox.Spec{Orphan: time.Hour})
	conn := func() net.Conn {
		c, err := d.dial(sb.ID())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	nonce := make([]byte, execproto.NonceLen)
	for _, say := range [][]byte{
		execproto.Token(executor.NewKey(), execproto.HostSpeaks, nonce),
		bytes.Repeat([]byte{0}, 1000),
		[]byte(strings.Repeat("\nevalrun resync ", 100)),
	} {
		c := conn()
		c.Write(say)
		if b, err := io.ReadAll(c); len(b) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20q: answered %q, %v", say, b, err)
		}
	}
	conn() // says nothing, and keeps the next waiting for a while
	if out, _ := sh(t, sb, "echo mine"); out != "mine\n" {
		t.Errorf("got %q", out)
	}
	other := New()
	other.state = d.state
	found, err := other.Find(t.Context(), sb.ID())
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := sh(t, found, "echo mine"); out != "mine\n" {
		t.Errorf("got %q", out)
	}
	// Its executor is the only one that can answer in its name.
	e, err := d.readState(sb.ID())
	if err != nil {
		t.Fatal(err)
	}
	file := d.stateFiles(sb.ID())[0]
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	l, err := (&box{d: d, id: sb.ID()}).socket()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	listening := int(l.Fd())
	go func() {
		if fd, _, err := unix.Accept(listening); err == nil {
			unix.Write(fd, execproto.Token(executor.NewKey(), execproto.ExecutorSpeaks, nonce))
			unix.Close(fd)
		}
	}()
	third := New()
	third.state = d.state
	if sb, err := third.Find(t.Context(), e.ID); err == nil {
		t.Errorf("found %s, which another answers for", sb.ID())
	}
	found.Close()
}

// How long it takes to find all sandboxes of a killed host.
func TestFindMany(t *testing.T) {
	d := require(t)
	ownState(t, d)
	h := startHost(t, d, time.Hour, "20")
	h.kill()
	begun := time.Now()
	var wg sync.WaitGroup
	found := make([]sandbox.Sandbox, len(h.ids))
	for i, id := range h.ids {
		wg.Go(func() {
			var err error
			if found[i], err = d.Find(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d sandboxes found in %v", len(found), time.Since(begun).Round(time.Millisecond))
	for _, sb := range found {
		if sb == nil {
			continue
		}
		if out, _ := sh(t, sb, "cat /tmp/log"); out != "begun\n" {
			t.Errorf("got %q", out)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A found sandbox has the network policy that was last in force.
func TestFoundNetwork(t *testing.T) {
	w := world(t)
	w.Name("good.test", w.Addr(2))
	w.Name("bad.test", w.Addr(3))
	serve(t, w.Listen(w.Addr(2), 80), "good")
	serve(t, w.Listen(w.Addr(3), 80), "bad")
	d := require(t)
	ownState(t, d)
	sb := create(t, d, sandbox.Spec{Orphan: time.Hour, Rewire: true})
	allow := sandbox.Network{Mode: "allow", Allow: []string{"good.test"}}
	if err := sb.(sandbox.Rewirer).Rewire(t.Context(), allow); err != nil {
		t.Fatal(err)
	}
	other := New()
	other.state = d.state
	found, err := other.Find(t.Context(), sb.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for _, proxy := range []string{"", "unset http_proxy HTTP_PROXY; "} {
		if out := script(t, found, proxy+"curl -s -m 20 http://good.test/x"); !strings.HasPrefix(out, "good") {
			t.Errorf("%sgood.test: %q", proxy, out)
		}
		if out := script(t, found, proxy+"curl -s -m 5 http://bad.test/x"); strings.HasPrefix(out, "bad") {
			t.Errorf("%sbad.test: %q", proxy, out)
		}
	}
}
