package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/workspace"
)

// open makes a workspace over a sandbox of d.
func open(t *testing.T, d sandbox.Driver, spec sandbox.Spec, o workspace.Options) *workspace.Workspace {
	t.Helper()
	sb, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	return workspace.New(func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, o)
}

// step runs one action.
func step(t *testing.T, w *workspace.Workspace, a event.Event) event.RunResult {
	t.Helper()
	b, err := w.Step(t.Context(), a)
	if err != nil {
		t.Fatalf("Step: %v", err)
	}
	r, ok := b.(event.RunResult)
	if !ok {
		t.Fatalf("Step: %#v", b)
	}
	return r
}

func run(command string) event.Event { return event.New(event.FromAgent, event.Run{Command: command}) }

func TestLazy(t *testing.T) {
	gone := errors.New("no machine today")
	calls := 0
	w := workspace.New(func(context.Context) (sandbox.Sandbox, error) { calls++; return nil, gone },
		workspace.Options{})
	for what, b := range map[string]event.Body{
		"unsupported":  event.ToolCall{Name: "x"},
		"invalid_call": event.Run{Command: " \n"},
	} {
		got, err := w.Step(t.Context(), event.New(event.FromAgent, b))
		if e, ok := got.(event.Error); err != nil || !ok || e.Code != what {
			t.Errorf("%#v: %#v, %v", b, got, err)
		}
	}
	for _, r := range []event.Run{{Command: "a\x00b"}, {Args: []string{"x"}, Command: "y"},
		{Args: []string{"x", strings.Repeat("y", 1<<17)}}} {
		if got, err := w.Step(t.Context(), event.New(event.FromAgent, r)); err != nil || got.Kind() != "error" {
			t.Errorf("%.50v: %#v, %v", r, got, err)
		}
	}
	if calls != 0 {
		t.Errorf("a machine was asked for %d times, for nothing", calls)
	}
	if _, err := w.Step(t.Context(), run("true")); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
}

// isolated returns the local driver, whose sandboxes have the system's shells.
func isolated(t *testing.T) sandbox.Driver {
	t.Helper()
	d := local.New()
	t.Cleanup(func() { d.Close() })
	if err := d.Probe(t.Context()); err != nil && os.Getenv("EVALRUN_TEST_LOCAL") == "" {
		t.Skip("needs the sandbox driver: ", err)
	}
	return d
}

func TestDirectories(t *testing.T) {
	w := open(t, isolated(t), sandbox.Spec{Dir: "/workspace"}, workspace.Options{})
	for _, tt := range []struct {
		command, output string
		code            int
		dir             string
	}{
		{"echo hello; exit 3", "hello\n", 3, ""},
		{"pwd", "/workspace\n", 0, ""},
		{"mkdir -p /workspace/a/b && cd a && echo in", "in\n", 0, "/workspace/a"},
		{"pwd; cd b; exit 7", "/workspace/a\n", 7, "/workspace/a/b"},
		{"printf 'no line break'; cd ..", "no line break", 0, "/workspace/a"},
		{"exit 127", "", 127, "/workspace/a"},
		{"rm -r /workspace/a", "", 0, "/workspace/a"},
		{"pwd", "(the working directory /workspace/a is gone; this runs in /workspace)\n/workspace\n", 0, "/workspace"},
		{"mkdir \"it's \\$odd\" && cd it*", "", 0, "/workspace/it's $odd"},
		{"pwd; cd ..", "/workspace/it's $odd\n", 0, "/workspace"},
		{"echo to stderr >&2", "to stderr\n", 0, ""},
	} {
		r := step(t, w, run(tt.command))
		if r.Output != tt.output || r.Code != tt.code || r.Dir != tt.dir && !(tt.dir == "" && r.Dir == "/workspace") {
			t.Errorf("%s: %+v", tt.command, r)
		}
		if note := strings.Index(r.Output, ")\n") + 2; r.OutBytes != int64(len(r.Output)) &&
			(note < 2 || r.OutBytes != int64(len(r.Output)-note)) {
			t.Errorf("%s: %d bytes counted, %q shown", tt.command, r.OutBytes, r.Output)
		}
	}
	// Each actor has its own working directory, and an action's Dir does not change it.
	step(t, w, run("mkdir /tmp/elsewhere && cd /tmp/elsewhere"))
	other := run("pwd")
	other.Actor = "1"
	if r := step(t, w, other); r.Output != "/workspace\n" {
		t.Errorf("another actor is in %q", r.Output)
	}
	there := event.New(event.FromAgent, event.Run{Command: "pwd; cd /", Dir: "/tmp"})
	if r := step(t, w, there); r.Output != "/tmp\n" {
		t.Errorf("in a directory of its own: %q", r.Output)
	}
	if r := step(t, w, run("pwd")); r.Output != "/tmp/elsewhere\n" {
		t.Errorf("afterwards: %q", r.Output)
	}
	args := event.New(event.FromAgent, event.Run{Args: []string{"echo", "$HOME", "a b"}})
	for range 2 { // in the first directory, and in another one
		if r := step(t, w, args); r.Output != "$HOME a b\n" || r.Code != 0 {
			t.Errorf("without a shell: %+v", r)
		}
		args.Actor = "2"
	}
	rel := event.New(event.FromAgent, event.Run{Command: "pwd", Dir: ".."})
	if r := step(t, w, rel); r.Output != "/tmp\n" || r.Dir != "/tmp/elsewhere" {
		t.Errorf("a relative directory: %+v", r)
	}
	rel.Body = event.Run{Args: []string{"pwd"}, Dir: "not/there"}
	if r := step(t, w, rel); r.Code != 126 || !strings.Contains(r.Output, "not/there") {
		t.Errorf("a relative directory that is missing: %+v", r)
	}
}

// counter counts the commands that name a program.
type counter struct {
	sandbox.Sandbox
	program string
	n       int
}

func (c *counter) Exec(ctx context.Context, cmd sandbox.Command) (sandbox.Exit, error) {
	if cmd.Args[0] == c.program {
		c.n++
	}
	return c.Sandbox.Exec(ctx, cmd)
}

func TestNoBash(t *testing.T) {
	code, ran := 0, 0
	d := fake.New(fake.Options{Commands: map[string]fake.Func{"sh": func(_ context.Context, p *fake.Proc) int {
		if p.Args[2] == ":" { // asks whether there is such a shell
			return 0
		}
		ran++
		return code
	}}})
	sb, err := d.Create(t.Context(), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	bash := &counter{Sandbox: sb, program: "bash"}
	w := workspace.New(func(context.Context) (sandbox.Sandbox, error) { return bash, nil }, workspace.Options{})
	for i := range 3 {
		a := run("a command")
		a.ID = int64(i)
		code = 125 + i
		if r := step(t, w, a); r.Code != code || r.Output != "" {
			t.Errorf("%+v", r)
		}
	}
	if ran != 3 {
		t.Errorf("3 commands ran %d times", ran)
	}
	if bash.n > 2 {
		t.Errorf("bash was tried %d times", bash.n)
	}
	// Without any shell, the agent gets the sandbox's message.
	w = open(t, fake.New(fake.Options{}), sandbox.Spec{}, workspace.Options{})
	if r := step(t, w, run("true")); r.Code != 127 || !strings.Contains(r.Output, "not found") {
		t.Errorf("%+v", r)
	}
}

func TestOutput(t *testing.T) {
	bytes := func(_ context.Context, p *fake.Proc) int {
		p.Stdout.Write([]byte("a\x00b\xff\xfe\u00fc\x1b[31m"))
		return 0
	}
	count := func(_ context.Context, p *fake.Proc) int {
		for i := range 100_000 {
			fmt.Fprintln(p.Stdout, i+1)
		}
		return 0
	}
	w := open(t, fake.New(fake.Options{Commands: map[string]fake.Func{"bytes": bytes, "count": count}}), sandbox.Spec{},
		workspace.Options{Limit: 1000})
	r := step(t, w, event.New(event.FromAgent, event.Run{Args: []string{"bytes"}}))
	if r.Output != "a\uFFFDb\uFFFD\u00fc\x1b[31m" || r.OutBytes != 12 || r.Truncated {
		t.Errorf("%+v", r)
	}
	r = step(t, w, event.New(event.FromAgent, event.Run{Args: []string{"count"}}))
	if !r.Truncated || r.Full == "" || r.OutBytes != 588895 {
		t.Errorf("%+v", r)
	}
	if !strings.HasPrefix(r.Output, "1\n2\n3\n") || !strings.HasSuffix(r.Output, "99999\n100000\n") ||
		len(r.Output) > 1100 || !utf8.ValidString(r.Output) {
		t.Errorf("%q", r.Output)
	}
}

// bash returns a driver whose only program is a shell that f implements. It gets the action's
// command, without what Workspace puts before it.
func bash(f func(p *fake.Proc, command string) int) *fake.Driver {
	return fake.New(fake.Options{Commands: map[string]fake.Func{"bash": func(_ context.Context, p *fake.Proc) int {
		return f(p, p.Args[2][strings.LastIndex(p.Args[2], "; ")+2:])
	}}})
}

func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := bash(func(p *fake.Proc, command string) int {
			switch command {
			case "allocate":
				p.Alloc(2 << 20)
			case "wait":
				fmt.Fprintln(p.Stdout, "begun")
				p.Sleep(1000 * time.Hour)
			default:
				fmt.Fprintln(p.Stdout, command)
			}
			return 0
		})
		w := open(t, d, sandbox.Spec{Memory: 1 << 20}, workspace.Options{Timeout: time.Minute, MaxTimeout: time.Hour})
		if r := step(t, w, run("allocate")); !r.OOM || r.Code == 0 {
			t.Errorf("out of memory: %+v", r)
		}
		for _, tt := range []struct{ asked, want time.Duration }{{0, time.Minute}, {time.Second, time.Second},
			{24 * time.Hour, time.Hour}} {
			a := run("wait")
			a.Timeout = tt.asked
			begin := time.Now()
			if r := step(t, w, a); !r.TimedOut || r.Code != -1 || r.Output != "begun\n" ||
				r.WallMS != tt.want.Milliseconds() {
				t.Errorf("%v: %+v", tt.asked, r)
			}
			if took := time.Since(begin); took != tt.want {
				t.Errorf("%v: took %v", tt.asked, took)
			}
		}
		why := errors.New("the trial is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		if _, err := w.Step(ctx, run("wait")); !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
		if r := step(t, w, run("on")); r.Output != "on\n" {
			t.Errorf("%+v", r)
		}
	})
}

func TestRunsOnce(t *testing.T) {
	ran := 0
	d := bash(func(*fake.Proc, string) int { ran++; return 4 })
	w := open(t, d, sandbox.Spec{}, workspace.Options{})
	a := run("a command")
	a.ID = 17
	for range 2 {
		if r := step(t, w, a); r.Code != 4 {
			t.Errorf("%+v", r)
		}
	}
	if ran != 1 {
		t.Errorf("ran %d times", ran)
	}
}

func BenchmarkStep(b *testing.B) {
	d := bash(func(p *fake.Proc, command string) int { fmt.Fprintln(p.Stdout, command); return 0 })
	sb, _ := d.Create(b.Context(), sandbox.Spec{Dir: "/workspace"})
	w := workspace.New(func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, workspace.Options{})
	a := run("hello")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Step(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
}
