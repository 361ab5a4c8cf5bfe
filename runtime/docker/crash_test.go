package docker

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// crasher is the child's part: a sandbox with all that one can have, from its start to its end.
func crasher(ref, host, real, state, run string) error {
	d := New(Options{Host: host, State: state})
	d.engine.client()
	d.engine.host = real // as its file names it
	owner := sandbox.Self()
	owner.Run = run
	vol := []sandbox.Volume{{Name: "v", Path: "/shared"}}
	side := sandbox.Spec{Image: sandbox.Image{Ref: ref}, Entrypoint: []string{helperPath, "sleep", "1000h"},
		Volumes: vol}
	sb, err := d.Create(context.Background(), sandbox.Spec{
		Owner: owner, Image: sandbox.Image{Ref: ref}, Services: map[string]sandbox.Spec{"side": side}, Volumes: vol,
		Orphan: time.Hour,
	})
	if err != nil {
		return err
	}
	if _, err := sb.Exec(context.Background(), sandbox.Command{Args: []string{helperPath, "echo"}}); err != nil {
		return err
	}
	return sb.Close()
}

// A proxy stands between a driver and its engine and sees the requests that go by.
type proxy struct {
	host string
	l    net.Listener
	wg   sync.WaitGroup
	// request is called with each, and says whether it is passed on; answer, when the engine begins
	// to answer it.
	request func(n int, line string) bool
	answer  func(n int, line string)

	mu sync.Mutex
	n  int
}

var requestLine = regexp.MustCompile(`^(GET|HEAD|POST|PUT|DELETE) \S+ HTTP/1\.1\r\n`)

func newProxy(t testing.TB, engine string) *proxy {
	t.Helper()
	p := &proxy{request: func(int, string) bool { return true }, answer: func(int, string) {}}
	path := filepath.Join(t.TempDir(), "proxy.sock")
	var err error
	if p.l, err = net.Listen("unix", path); err != nil {
		t.Fatal(err)
	}
	p.host = "unix://" + path
	go func() {
		for {
			c, err := p.l.Accept()
			if err != nil {
				return
			}
			p.wg.Add(1)
			go func() {
				defer p.wg.Done()
				p.serve(c, strings.TrimPrefix(engine, "unix://"))
			}()
		}
	}()
	t.Cleanup(func() { p.l.Close() })
	return p
}

func (p *proxy) serve(c net.Conn, engine string) {
	defer c.Close()
	e, err := net.Dial("unix", engine)
	if err != nil {
		return
	}
	defer e.Close()
	var mu sync.Mutex
	asked, line := 0, ""
	go func() {
		b := make([]byte, 32<<10)
		for {
			n, err := e.Read(b)
			mu.Lock()
			at, l := asked, line
			asked = 0
			mu.Unlock()
			if at > 0 {
				p.answer(at, l)
			}
			if n > 0 {
				c.Write(b[:n])
			}
			if err != nil {
				c.Close()
				return
			}
		}
	}()
	// What the engine was told to do it does, and is listened to, also when whoever asked is dead.
	defer func() {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			mu.Lock()
			n := asked
			mu.Unlock()
			if n == 0 {
				return
			}
		}
	}()
	b := make([]byte, 32<<10)
	for {
		n, err := c.Read(b)
		if m := requestLine.Find(b[:n]); m != nil {
			p.mu.Lock()
			p.n++
			at := p.n
			p.mu.Unlock()
			mu.Lock()
			asked, line = at, string(bytes.TrimSpace(m))
			mu.Unlock()
			if !p.request(at, string(bytes.TrimSpace(m))) {
				mu.Lock()
				asked = 0
				mu.Unlock()
				return
			}
		}
		if n > 0 {
			if _, err := e.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// TestCrash kills a process of ours, for good, at each step of a start and of an end: before the
// engine hears of it, and while the engine is at it. Then somebody else clears up, and nothing is
// left.
func TestCrash(t *testing.T) {
	if args := os.Getenv("EVALRUN_TEST_CRASH"); args != "" {
		a := strings.Split(args, "\n")
		if err := crasher(a[0], a[1], a[2], a[3], a[4]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	d := require(t)
	spec := helped(t, d)
	steps := 0
	for _, during := range []bool{false, true} {
		for step := 1; ; step++ {
			run := "crash-" + random(6)
			begun := time.Now()
			over, what := crashAt(t, d, spec.Image.Ref, run, step, during)
			took := time.Since(begun)
			steps++
			n, err := d.Reap(context.Background(), func(o sandbox.Owner) bool { return o.Run != run })
			if err != nil {
				t.Errorf("step %d (%s): Reap: %v", step, what, err)
			}
			if over && n != 0 {
				t.Errorf("a child that was not killed left %d sandboxes", n)
			}
			if left := ofRun(t, d, run); len(left) != 0 {
				t.Errorf("step %d (%s), during %v: left %q", step, what, during, left)
			}
			if over {
				break
			}
			t.Logf("%v: killed at %s, during %v: %d cleared in %v", took, what, during, n, time.Since(begun)-took)
		}
	}
	if steps < 24 {
		t.Errorf("only %d steps", steps)
	}
	if left := mine(t, d); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

// crashAt runs a child and kills it at one of its requests. over: it came to its end before.
func crashAt(t *testing.T, d *Driver, ref, run string, step int, during bool) (over bool, what string) {
	p := newProxy(t, d.engine.name())
	self, _ := os.Executable()
	cmd := exec.Command(self, "-test.run=^TestCrash$")
	cmd.Env = append(os.Environ(), "EVALRUN_TEST_CRASH="+
		strings.Join([]string{ref, p.host, d.engine.name(), d.state, run}, "\n"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	killed := make(chan struct{})
	answered := make(chan struct{})
	p.request = func(n int, line string) bool {
		if n != step {
			return n < step
		}
		what = line
		close(killed)
		if during {
			go func() { time.Sleep(5 * time.Millisecond); cmd.Process.Kill() }()
		} else {
			cmd.Process.Kill()
		}
		return during
	}
	p.answer = func(n int, line string) {
		if n == step {
			close(answered)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	select {
	case <-killed:
	default:
		if err != nil && cmd.ProcessState != nil && !cmd.ProcessState.Success() {
			t.Fatalf("the child failed: %v\n%s", err, &out)
		}
		return true, ""
	}
	if during { // what the engine was told to do, it does
		select {
		case <-answered:
		case <-time.After(time.Minute):
			t.Fatalf("the engine does not answer %s", what)
		}
	}
	p.l.Close()
	return false, what
}

// ofRun lists what is there of a run.
func ofRun(t testing.TB, d *Driver, run string) []string {
	all, err := d.list(context.Background(), api(t, d), labelSandbox)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for id, f := range all {
		if f.labels[labelRun] == run {
			out = append(out, id+" "+strconv.Itoa(len(f.containers))+" "+strconv.Itoa(len(f.volumes))+" "+f.network)
		}
	}
	return out
}

// Canceled at each step of a start, Create leaves nothing, also when the engine answers only when
// nobody listens any more.
func TestCanceledAtEachStep(t *testing.T) {
	real := require(t)
	spec := helped(t, real)
	side := spec
	side.Entrypoint = []string{helperPath, "sleep", "1000h"}
	spec.Services = map[string]sandbox.Spec{"side": side}
	spec.Volumes = []sandbox.Volume{{Name: "v", Path: "/v"}}
	for _, late := range []bool{false, true} {
		for step := 1; ; step++ {
			p := newProxy(t, real.engine.name())
			d := New(Options{Host: p.host, State: real.state})
			cause := fmt.Errorf("canceled at step %d", step)
			ctx, cancel := context.WithCancelCause(context.Background())
			what := ""
			p.request = func(n int, line string) bool {
				if n == step {
					what = line
					cancel(cause)
				}
				return true
			}
			p.answer = func(n int, line string) {
				if late && n == step {
					time.Sleep(300 * time.Millisecond)
				}
			}
			sb, err := d.Create(ctx, spec)
			if err == nil {
				sb.Close()
			}
			d.Close()
			cancel(nil)
			if left := mine(t, real); len(left) != 0 {
				t.Errorf("canceled at %s: left %q", what, left)
			}
			if what == "" {
				break
			}
			if err != nil && !strings.Contains(err.Error(), cause.Error()) {
				t.Errorf("canceled at %s: %v", what, err)
			}
		}
	}
}

// An engine that stops answering in the middle of a start does not hold up who no longer wants it,
// and what it does later is cleared away.
func TestEngineStalls(t *testing.T) {
	real := require(t)
	spec := helped(t, real)
	p := newProxy(t, real.engine.name())
	d := New(Options{Host: p.host, State: real.state})
	stalled, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.answer = func(n int, line string) {
		if strings.Contains(line, "/containers/create") {
			once.Do(func() { close(stalled) })
			<-goOn
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := d.Create(ctx, spec)
		done <- err
	}()
	select {
	case <-stalled:
	case err := <-done:
		t.Fatalf("it ended before it made a container: %v", err)
	}
	cause := fmt.Errorf("no longer wanted")
	cancel(cause)
	if err := soon(t, "Create", done); err == nil || !strings.Contains(err.Error(), cause.Error()) {
		t.Errorf("Create: %v", err)
	}
	close(goOn)
	d.Close()
	if left := mine(t, real); len(left) != 0 {
		t.Errorf("left %q", left)
	}
}
