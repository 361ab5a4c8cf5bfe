package workspace_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/workspace"
)

// Commands behave in the same way in all shells that images have.
func TestRealShells(t *testing.T) {
	for _, shell := range []string{"bash", "dash", "ash"} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip("needs ", shell)
			}
			for _, d := range []*local.Driver{local.New(), local.NewUnisolated()} {
				t.Run(d.Name(), func(t *testing.T) {
					t.Cleanup(func() { d.Close() })
					if err := d.Probe(t.Context()); err != nil && os.Getenv("EVALRUN_TEST_LOCAL") == "" {
						t.Skip("needs the sandbox driver: ", err)
					}
					real(t, d, shell)
					users(t, d)
				})
			}
		})
	}
}

func real(t *testing.T, d sandbox.Driver, shell string) {
	w := open(t, d, sandbox.Spec{Dir: "/workspace"}, workspace.Options{Shell: shell, Dir: "/workspace", Limit: 4000})
	one := func(command string) event.RunResult { t.Helper(); return step(t, w, run(command)) }
	check := func(command, output string, code int, dir string) {
		t.Helper()
		r := one(command)
		if r.Output != output || r.Code != code || !strings.HasSuffix(r.Dir, dir) || r.OutBytes != int64(len(output)) {
			t.Errorf("%s: %+v", command, r)
		}
	}
	check("echo hello; exit 3", "hello\n", 3, "/workspace")
	check("false", "", 1, "/workspace")
	check("mkdir -p 'a b/it'\"'s\"/'$c' && cd 'a b' && printf x", "x", 0, "/workspace/a b")
	check("cd \"it's/\\$c\"; basename \"$PWD\"; exit 7", "$c\n", 7, "it's/$c")
	check("(cd / && pwd); set -eu; false; echo no", "/\n", 1, "it's/$c")
	check("cat <<'EOF'\n$x `y`\nEOF", "$x `y`\n", 0, "it's/$c")
	check("# only a remark", "", 0, "it's/$c")
	check("cat; echo $#", "0\n", 0, "it's/$c")
	check("cd ../..; exec true", "", 0, "it's/$c") // no shell is left to tell
	check("cd ../..; trap 'echo mine' EXIT", "mine\n", 0, "it's/$c")
	check("cd ../..; exec > log; echo into the file", "", 0, "it's/$c")
	check("cd ../..; kill -9 $$", "", -1, "it's/$c")
	check("cd ../..; rm -r \"it's\"", "", 0, "/workspace/a b")
	check("cd ..; rm -r 'a b'", "", 0, "/workspace")
	check("mkdir x; cd x", "", 0, "/workspace/x")
	check("rmdir ../x", "", 0, "/workspace/x")
	if r := one("basename \"$PWD\""); !strings.Contains(r.Output, "/x is gone; this runs in /") ||
		!strings.HasSuffix(r.Output, ")\nworkspace\n") || !strings.HasSuffix(r.Dir, "/workspace") {
		t.Errorf("a directory that is gone: %+v", r)
	}
	check("exit 127", "", 127, "/workspace")
	if r := one("no-such-program"); r.Code != 127 || !strings.Contains(r.Output, "not found") {
		t.Errorf("no such program: %+v", r)
	}
	if r := one("echo 'unclosed"); r.Code == 0 {
		t.Errorf("a syntax error: %+v", r)
	}
	if r := one("true\ntrue\nif"); r.Code == 0 || strings.Contains(r.Output, "line 1:") {
		t.Errorf("line numbers are not those of the command: %+v", r)
	}
	r := one("i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; done; mkdir y; cd y")
	if !r.Truncated || r.OutBytes != 13893 || !strings.HasPrefix(r.Output, "1\n2\n") ||
		!strings.HasSuffix(r.Output, "2999\n3000\n") || !strings.HasSuffix(r.Dir, "/workspace/y") {
		t.Errorf("long output: %+v", r)
	}
	check("mkdir -p /tmp/q; cat > big <<'EOF'\n"+strings.Repeat("0123456789abcde\n", 20000)+
		"EOF\nwc -c < big; cat; cd ..", "320000\n", 0, "/workspace")
	a := event.New(event.FromAgent, event.Run{Args: []string{"printf", "%s.", "$HOME", "a b"}})
	step(t, w, run("cd y"))
	if r := step(t, w, a); r.Output != "$HOME.a b." || r.Code != 0 {
		t.Errorf("arguments: %+v", r)
	}
	one("rm -r \"$PWD\" && cd / && rm -rf " + "\"$OLDPWD\"")
}

// A user that the machine does not have is a mistake of the action's, also in the first one.
func users(t *testing.T, d sandbox.Driver) {
	for _, user := range []string{"nosuch", "root:nosuch", "\x00", strings.Repeat("x", 1<<16)} {
		w := open(t, d, sandbox.Spec{Dir: "/workspace"}, workspace.Options{Dir: "/workspace"})
		got, err := w.Step(t.Context(), event.New(event.FromAgent, event.Run{Command: "true", User: user}))
		if e, ok := got.(event.Error); err != nil || !ok || e.Text == "" || len(e.Text) > 1000 {
			t.Errorf("user %.20q: %#v, %v", user, got, err)
		}
	}
}
