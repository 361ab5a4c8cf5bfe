package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/fake"
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

func TestShell(t *testing.T) {
	w := open(t, fake.New(fake.Options{}), sandbox.Spec{Dir: "/workspace"}, workspace.Options{})
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
		{"nonsense", "bash: nonsense: command not found\n", 127, "/workspace/a"},
		{"rm -r /workspace/a", "", 0, "/workspace/a"},
		{"pwd", "(the working directory /workspace/a is gone; this runs in /workspace)\n/workspace\n", 0, "/workspace"},
		{"mkdir \"it's \\$odd\" && cd it*", "bash: cd: it*: file does not exist\n", 1, "/workspace"},
		{"cd \"it's \\$odd\"; cd ./.", "", 0, "/workspace/it's $odd"},
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
	// Actors do not move each other; a directory of the action's own moves nobody.
	step(t, w, run("mkdir /elsewhere && cd /elsewhere"))
	other := run("pwd")
	other.Actor = "1"
	if r := step(t, w, other); r.Output != "/workspace\n" {
		t.Errorf("another actor is in %q", r.Output)
	}
	there := event.New(event.FromAgent, event.Run{Command: "pwd; cd /", Dir: "/tmp"})
	if r := step(t, w, there); r.Output != "/tmp\n" {
		t.Errorf("in a directory of its own: %q", r.Output)
	}
	if r := step(t, w, run("pwd")); r.Output != "/elsewhere\n" {
		t.Errorf("afterwards: %q", r.Output)
	}
	args := event.New(event.FromAgent, event.Run{Args: []string{"echo", "$HOME", "a b"}, User: "7:8"})
	for range 2 { // from where commands begin, and from elsewhere
		if r := step(t, w, args); r.Output != "$HOME a b\n" || r.Code != 0 {
			t.Errorf("without a shell: %+v", r)
		}
		args.Actor = "2"
	}
	rel := event.New(event.FromAgent, event.Run{Command: "pwd", Dir: "../tmp"})
	if r := step(t, w, rel); r.Output != "/tmp\n" || r.Dir != "/elsewhere" {
		t.Errorf("a relative directory: %+v", r)
	}
	rel.Body = event.Run{Args: []string{"pwd"}, Dir: "not/there"}
	if r := step(t, w, rel); r.Code != 126 || !strings.Contains(r.Output, "not/there") {
		t.Errorf("a relative directory that is missing: %+v", r)
	}
}

func TestNoBash(t *testing.T) {
	bash := 0
	d := fake.New(fake.Options{Commands: map[string]fake.Func{"bash": nil},
		OnExec: func(_ *fake.Sandbox, c sandbox.Command) error {
			if c.Args[0] == "bash" {
				bash++
			}
			return nil
		}})
	w := open(t, d, sandbox.Spec{}, workspace.Options{})
	for i := range 3 {
		a := run(fmt.Sprintf("echo once >> /tmp/n; exit %d", 125+i))
		a.ID = int64(i)
		if r := step(t, w, a); r.Code != 125+i || r.Output != "" {
			t.Errorf("%+v", r)
		}
	}
	if r := step(t, w, run("cat /tmp/n")); r.Output != "once\nonce\nonce\n" {
		t.Errorf("ran: %q", r.Output)
	}
	if bash > 2 {
		t.Errorf("bash was tried %d times", bash)
	}
	// Nothing at all to run it with: that is what the agent is told.
	w = open(t, fake.New(fake.Options{Commands: map[string]fake.Func{"bash": nil, "sh": nil}}), sandbox.Spec{},
		workspace.Options{})
	if r := step(t, w, run("true")); r.Code != 127 || !strings.Contains(r.Output, "not found") {
		t.Errorf("%+v", r)
	}
}

func TestOutput(t *testing.T) {
	bytes := func(_ context.Context, p *fake.Proc) int {
		p.Stdout.Write([]byte("a\x00b\xff\xfe\u00fc\x1b[31m"))
		return 0
	}
	w := open(t, fake.New(fake.Options{Commands: map[string]fake.Func{"bytes": bytes}}), sandbox.Spec{},
		workspace.Options{Limit: 1000})
	r := step(t, w, run("bytes"))
	if r.Output != "a\uFFFDb\uFFFD\u00fc\x1b[31m" || r.OutBytes != 12 || r.Truncated {
		t.Errorf("%+v", r)
	}
	r = step(t, w, run("seq 100000; cd /tmp"))
	if !r.Truncated || r.Full == "" || r.OutBytes != 588895 || r.Dir != "/tmp" {
		t.Errorf("%+v", r)
	}
	if !strings.HasPrefix(r.Output, "1\n2\n3\n") || !strings.HasSuffix(r.Output, "99999\n100000\n") ||
		len(r.Output) > 1100 || !utf8.ValidString(r.Output) {
		t.Errorf("%q", r.Output)
	}
	// What no argument can hold goes another way, and says the same.
	r = step(t, w, run("cat > /tmp/big <<'EOF'\n"+strings.Repeat("0123456789abcde\n", 20000)+
		"EOF\nwc -c /tmp/big; cat; cd /"))
	if r.Output != "320000\n" || r.Code != 0 || r.Dir != "/" {
		t.Errorf("a long command: %+v", r)
	}
}

func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fake.New(fake.Options{OOM: 1})
		w := open(t, d, sandbox.Spec{}, workspace.Options{Timeout: time.Minute, MaxTimeout: time.Hour})
		if r := step(t, w, run("true")); !r.OOM || r.Code == 0 {
			t.Errorf("out of memory: %+v", r)
		}
		for _, tt := range []struct{ asked, want time.Duration }{{0, time.Minute}, {time.Second, time.Second},
			{24 * time.Hour, time.Hour}} {
			a := run("echo begun; sleep 1000000; echo never")
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
		if _, err := w.Step(ctx, run("sleep 1000")); !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
		if r := step(t, w, run("echo on")); r.Output != "on\n" {
			t.Errorf("%+v", r)
		}
	})
}

func TestRunsOnce(t *testing.T) {
	w := open(t, fake.New(fake.Options{}), sandbox.Spec{}, workspace.Options{})
	a := run("echo x >> /tmp/n; exit 4")
	a.ID = 17
	for range 2 {
		if r := step(t, w, a); r.Code != 4 {
			t.Errorf("%+v", r)
		}
	}
	if r := step(t, w, run("cat /tmp/n")); r.Output != "x\n" {
		t.Errorf("ran %q", r.Output)
	}
}

func BenchmarkStep(b *testing.B) {
	sb, _ := fake.New(fake.Options{}).Create(b.Context(), sandbox.Spec{Dir: "/workspace"})
	w := workspace.New(func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, workspace.Options{})
	a := run("echo hello > f; cat f")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Step(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
}
