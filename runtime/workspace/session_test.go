package workspace_test

import (
	"context"
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

func session(command string) event.Run { return event.Run{Command: command, Session: true} }

func input(text string) event.Run { return event.Run{Command: text, Session: true, Input: true} }

// What a model sees of a persistent shell.
func TestSession(t *testing.T) {
	w := open(t, isolated(t), sandbox.Spec{Dir: "/workspace"},
		workspace.Options{Dir: "/workspace", NoChange: 300 * time.Millisecond, Limit: 1000})
	const how = "An empty command waits for more output. With is_input, text is typed for the program that is running, " +
		"and C-c, C-z or C-d are keys that interrupt, stop or end its input. A timeout lets a later command take longer.]"
	const still = "[The command has no new output after 0.3 seconds. " + how
	const previous = "[Below is the output of the previous command.]\n"
	ended := func(code, dir string) string {
		return "[The command completed with exit code " + code + ".]\n[Current working directory: " + dir +
			"]\n[Command finished with exit code " + code + "]"
	}
	key := func(k, code, dir string) string {
		return strings.Replace(ended(code, dir), ".]", ". CTRL+"+k+" was sent.]", 1)
	}
	for i, tt := range []struct {
		run  event.Run
		want string
	}{
		{session(""), "ERROR: no command is running that has more output.\n[Nothing was executed.]"},
		{input("C-c"), "ERROR: no command is running that could take input.\n[Nothing was executed.]"},
		{session("echo hello"), "hello\n" + ended("0", "/workspace")},
		{session("  false  "), ended("1", "/workspace")},
		{session("mkdir a; cd a; x=5"), ended("0", "/workspace/a")},
		{session("echo $x\n"), "5\n" + ended("0", "/workspace/a")},
		{session("echo one\necho two"), "Error: several commands at once cannot be executed. " +
			"Run each by itself, or join them by && or ;\nThe commands:\n(1) echo one\n(2) echo two"},
		{session("for i in 1 2; do\n  echo $i\ndone"), "1\n2\n" + ended("0", "/workspace/a")},
		{session("cat <<EOF\n$x\nEOF"), "5\n" + ended("0", "/workspace/a")},
		{session("echo $("), "bash: unexpected EOF while looking for matching `)'\n" + ended("2", "/workspace/a")},
		{session("echo begun; read line; echo \"got $line\"; read line"), "begun\n" + still},
		{session("ls"), previous + "[This command was NOT executed, because the previous one is still running. " + how},
		{session(""), previous + still},
		{input("some text"), previous + "got some text\n" + still},
		{input("C-d"), previous + key("D", "1", "/workspace/a")},
		{session("sleep 1000"), still},
		{input("C-c"), previous + key("C", "130", "/workspace/a")},
		{session("printf 'a\\0b\\n'"), "a\uFFFDb\n" + ended("0", "/workspace/a")},
		{event.Run{Args: []string{"pwd"}}, "/workspace/a\n[exit code 0]\n[working directory /workspace/a]"},
		{session("exit 3"), "exit\n[The shell has ended with exit code 3. The next command starts a new one.]\n" +
			"[Current working directory: /workspace/a]\n[Command finished with exit code 3]"},
		{session("echo \"<$x>\""), "[The shell was started anew: its directory and variables are those " +
			"of the beginning.]\n<>\n" +
			ended("0", "/workspace")},
		{session("kill -9 $$"), "[The shell has ended by signal SIGKILL. The next command starts a new one.]\n" +
			"[Current working directory: /workspace]"},
	} {
		a := event.New(event.FromAgent, tt.run)
		a.ID = int64(i)
		got, err := w.Step(t.Context(), a)
		// On a busy computer, a command may print nothing for longer than NoChange before it is
		// done, and a key is lost while bash starts the program.
		for r, _ := got.(event.RunResult); r.Running && err == nil; {
			out, waiting := strings.CutSuffix(strings.TrimPrefix(tt.want, previous), still)
			if strings.Contains(tt.want, "NOT executed") || waiting && out == r.Output {
				break
			}
			if !strings.HasPrefix(tt.run.Command, "C-") {
				a.Body = session("")
			}
			a.ID += 1000
			prefix, begin := r.Prefix, r.Output
			if got, err = w.Step(t.Context(), a); err != nil {
				break
			}
			r = got.(event.RunResult)
			r.Prefix, r.Output = prefix, begin+r.Output
			got = r
		}
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, memory.Text(got)); d != "" {
			t.Fatalf("step %d, %q (-want +got):\n%s", i, tt.run.Command, d)
		}
	}
	// A timeout ends the waiting. A blocking command has no other limit.
	a := event.New(event.FromAgent, event.Run{Command: "sleep 1; echo slept", Session: true, Blocking: true})
	a.Timeout = time.Minute
	if r := step(t, w, a); r.Output != "slept\n" || r.Running {
		t.Errorf("%+v", r)
	}
	a.Body = event.Run{Command: "sleep 1000", Session: true, Blocking: true}
	a.Timeout = 500 * time.Millisecond
	if r := step(t, w, a); !r.TimedOut || !r.Running || r.Code != -1 ||
		!strings.HasPrefix(r.Suffix, "\n[The command timed out after 0.5 seconds. ") {
		t.Errorf("%+v", r)
	}
	// Each actor has its own shell.
	other := event.New(event.FromAgent, session("seq 1000"))
	other.Actor = "1"
	if r := step(t, w, other); !r.Truncated || r.Full == "" || r.OutBytes != 3893 || r.Code != 0 ||
		!strings.Contains(r.Output, "\n[... Observation truncated due to length ...]\n") ||
		!strings.HasPrefix(r.Output, "1\n2\n") || !strings.HasSuffix(r.Output, "999\n1000\n") {
		t.Errorf("%+v", r)
	}
	// Shells end with the agent. A command that is running goes on.
	if err := w.LeaveShells(t.Context()); err != nil {
		t.Fatal(err)
	}
	pidof := event.New(event.FromAgent, event.Run{Args: []string{"pidof", "bash"}})
	if r := step(t, w, pidof); strings.Count(r.Output, " ") != 0 {
		t.Errorf("shells are left: %q", r.Output)
	}
}

// Without persistent shells, a command of a session runs in a new shell, and the first result says
// why.
func TestNoSession(t *testing.T) {
	d := isolated(t)
	for what, options := range map[string]workspace.Options{
		"no bash": {Dir: "/workspace", Env: map[string]string{"PATH": "/workspace/bin"}, Shell: "/bin/sh"},
		"fake":    {},
	} {
		var sb sandbox.Sandbox
		var err error
		if what == "fake" {
			bash := func(context.Context, *fake.Proc) int { return 0 }
			sb, err = fake.New(fake.Options{Commands: map[string]fake.Func{"bash": bash}}).Create(t.Context(), sandbox.Spec{})
		} else {
			sb, err = d.Create(t.Context(), sandbox.Spec{Dir: "/workspace"})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sb.Close() })
		w := workspace.New(func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, options)
		for i := range 2 {
			r := step(t, w, event.New(event.FromAgent, session("true")))
			const why = "(there is no persistent shell, so each command runs in a new one: "
			if told := strings.HasPrefix(r.Output, why); r.Code != 0 || told != (i == 0) {
				t.Errorf("%s: %+v", what, r)
			}
		}
		for _, r := range []event.Run{session(""), input("x")} {
			got, err := w.Step(t.Context(), event.New(event.FromAgent, r))
			if e, ok := got.(event.Error); !ok || e.Code != "unsupported" || err != nil {
				t.Errorf("%s: %#v, %v", what, got, err)
			}
		}
		if err := w.LeaveShells(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, r := range []event.Run{{Session: true, Args: []string{"x"}}, {Command: "x", Input: true},
		{Session: true, Command: "x", Dir: "/"}, {Session: true, Command: "x", User: "y"}} {
		w := open(t, fake.New(fake.Options{}), sandbox.Spec{}, workspace.Options{})
		got, err := w.Step(t.Context(), event.New(event.FromAgent, r))
		if e, ok := got.(event.Error); !ok || e.Code != "invalid_call" || err != nil {
			t.Errorf("%+v: %#v, %v", r, got, err)
		}
	}
}
