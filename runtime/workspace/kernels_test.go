package workspace_test

import (
	"context"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/memory"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/workspace"
)

func cell(code string) event.Cell { return event.Cell{Code: code, Extra: true} }

// picture shows a picture of 10 × 10 points.
const picture = "import struct, zlib\nfrom IPython.display import Image, display\n" +
	"def chunk(kind, data):\n" +
	"    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))\n" +
	"display(Image(b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 10, 10, 8, 0, 0, 0, 0)) +\n" +
	"    chunk(b'IDAT', zlib.compress(bytes(11) * 10)) + chunk(b'IEND', b'')))\n"

// needKernel skips a test where sandboxes of this machine have no ipykernel.
func needKernel(t *testing.T, w *workspace.Workspace) {
	t.Helper()
	if r := step(t, w, run("python3 -c 'import ipykernel'")); r.Code != 0 {
		if os.Getenv("EVALRUN_TEST_LOCAL") != "" {
			t.Fatal("no ipykernel for /usr/bin/python3: ", r.Output)
		}
		t.Skip("needs ipykernel for /usr/bin/python3; scripts/setup-test installs it")
	}
}

// What a model sees of a kernel.
func TestCells(t *testing.T) {
	var kept [][]byte
	w := open(t, isolated(t), sandbox.Spec{Dir: "/workspace"}, workspace.Options{Dir: "/workspace", Limit: 2000,
		Keep: func(_ context.Context, kind string, image []byte) (event.Blob, error) {
			kept = append(kept, image)
			return event.Blob{SHA256: "sum", Type: kind, Size: int64(len(image))}, nil
		}})
	needKernel(t, w)
	extra := func(dir string) string {
		return "[Jupyter current working directory: " + dir + "]\n[Jupyter Python interpreter: /usr/bin/python3]"
	}
	see := func(actor string, b event.Body, timeout time.Duration) string {
		t.Helper()
		obs, err := w.Step(t.Context(), event.Event{ID: -1, Actor: actor, Body: b, Timeout: timeout})
		if err != nil {
			t.Fatalf("%+v: %v", b, err)
		}
		var all strings.Builder
		for _, p := range memory.Parts(obs, 30_000) {
			all.WriteString(p.Text)
			if p.Blob != nil {
				all.WriteString("<" + p.Blob.Type + ">")
			}
		}
		return all.String()
	}
	for i, tt := range []struct {
		body event.Body
		want string // its end, if the text has …
	}{
		{cell("x = 6 * 7"), "[The cell was executed. It printed nothing.]\n" + extra("/workspace")},
		{event.Cell{Code: "x"}, "42\n"},
		{session("mkdir a; cd a; echo 'hi' > f"), ""},
		{cell("!cat f"), "hi\n" + extra("/workspace/a")},
		{cell("import os; os.chdir('/')"), "[The cell was executed. It printed nothing.]\n" + extra("/")},
		{event.Run{Command: "cd .."}, ""},
		{cell("open('b', 'w').close()\nprint(x)"), "42\n" + extra("/workspace")},
		{session("cd /workspace; ls"), "a  b\n[The command completed with exit code 0.]\n[Current working directory: /workspace]\n" +
			"[Command finished with exit code 0]"},
		{cell(picture + "print(2)"), "<image/png>2\n" + extra("/workspace")},
		{cell("print('y' * 10_000)"), "…" + strings.Repeat("y", 998) + "\n[The output had 10001 bytes; its middle was left out.]\n" +
			extra("/workspace")},
		{cell("undefined"), "…NameError: name 'undefined' is not defined\n" + extra("/workspace")},
		{cell("import time\nwhile True: time.sleep(1)"), "…KeyboardInterrupt: \n[Execution timed out (1 seconds).]\n" + extra("/workspace")},
		{cell("import os\nos.kill(os.getpid(), 9)"), "[The kernel has died: it was ended by SIGKILL. The next cell starts a new one.]"},
		{cell("x"), "…NameError: name 'x' is not defined\n" + extra("/workspace")},
		{cell("exit()"), "[The cell has ended the kernel. The next cell starts a new one.]"},
		{cell("1"), "[The kernel was started anew: what earlier cells have defined is gone.]\n1\n" + extra("/workspace")},
		{session("mkdir gone; cd gone; rmdir ../gone"), ""},
		{cell("1"), "[The kernel cannot enter the shell's directory, /workspace/gone.]\n1\n" + extra("/workspace")},
	} {
		timeout := time.Minute
		if strings.Contains(tt.want, "timed out") {
			timeout = time.Second
		}
		got := see("", tt.body, timeout)
		want, part := strings.CutPrefix(tt.want, "…")
		if part && strings.HasSuffix(got, want) || tt.want == "" {
			continue
		}
		if d := cmp.Diff(want, strings.TrimPrefix(got, "Matplotlib is building the font cache; this may take a moment.\n")); d != "" {
			t.Errorf("%d, %+v (-want +got):\n%s", i, tt.body, d)
		}
	}
	if len(kept) != 1 || !strings.HasPrefix(string(kept[0]), "\x89PNG") {
		t.Errorf("%d pictures", len(kept))
	}
	if got := see("1", cell("y = 1"), time.Minute); got != "[The cell was executed. It printed nothing.]\n"+extra("/workspace") {
		t.Errorf("another actor: %q", got)
	}
	if err := w.LeaveShells(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := step(t, w, run("grep -l '[I]PKernelApp' /proc/[0-9]*/cmdline | wc -l")); !strings.HasSuffix(r.Output, "\n0\n") {
		t.Errorf("after the end: %+v", r)
	}
	for actor, want := range map[string]string{"": "[The kernel was started anew: what earlier cells have defined is gone.]\n2\n",
		"2": "2\n"} {
		if got := see(actor, event.Cell{Code: "1 + 1"}, time.Minute); got != want {
			t.Errorf("a new kernel of %q: %q", actor, got)
		}
	}
}

// Where there is no kernel, the reason is told, and the session goes on.
func TestNoKernel(t *testing.T) {
	w := open(t, isolated(t), sandbox.Spec{}, workspace.Options{Env: map[string]string{"PATH": "/nowhere"}, Shell: "/bin/sh"})
	for range 2 {
		obs, err := w.Step(t.Context(), event.Event{ID: -1, Body: cell("1")})
		if e, ok := obs.(event.Error); err != nil || !ok || e.Code != "unsupported" || !strings.Contains(e.Text, "no Python") {
			t.Errorf("%+v %v", obs, err)
		}
	}
	if r := step(t, w, run("echo hi")); r.Output != "hi\n" {
		t.Errorf("%+v", r)
	}
	w = open(t, fake.New(fake.Options{}), sandbox.Spec{}, workspace.Options{})
	if obs, err := w.Step(t.Context(), event.Event{ID: -1, Body: cell("1")}); err != nil || obs.Kind() != "error" {
		t.Errorf("a sandbox without ports: %+v %v", obs, err)
	}
	if obs, err := w.Step(t.Context(), event.Event{ID: -1, Body: cell(strings.Repeat("#", 2<<20))}); err != nil || obs.Kind() != "error" {
		t.Errorf("a cell of 2 MiB: %+v %v", obs, err)
	}
}

func TestRestoreCells(t *testing.T) {
	done := event.Event{ID: 1, Cause: 0, Body: event.CellResult{}}
	for _, c := range []struct {
		log  []event.Event
		fail string
	}{
		{[]event.Event{{ID: 0, Cause: -1, Body: cell("1")}, done}, ""},
		{[]event.Event{{ID: 0, Cause: -1, Body: cell("1")}}, "a cell was running"},
	} {
		w := workspace.New(nil, workspace.Options{})
		acted, err := w.Restore(values(c.log))
		if c.fail == "" && (err != nil || !acted) || c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)) {
			t.Errorf("%+v: %v %v", c.log, acted, err)
		}
	}
}

func values(list []event.Event) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for _, e := range slices.Clone(list) {
			if !yield(e, nil) {
				return
			}
		}
	}
}
