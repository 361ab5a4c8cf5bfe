package workspace_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/workspace"
)

// put writes files into the sandbox, by their paths.
func put(t *testing.T, w *workspace.Workspace, files map[string]string) {
	t.Helper()
	for name, text := range files {
		step(t, w, event.New(event.FromAgent, event.Run{Args: []string{"sh", "-c",
			`mkdir -p "$(dirname "$1")" && printf %s "$2" > "$1"`, "sh", name, text}}))
	}
}

func TestSearch(t *testing.T) {
	w := open(t, isolated(t), sandbox.Spec{Dir: "/workspace"}, workspace.Options{})
	put(t, w, map[string]string{"/workspace/a.py": "one\ntwo\n", "/workspace/d/b.py": "two\n", "/workspace/d/.h": "two\n"})
	for _, c := range []struct {
		do   event.Body
		want string // the whole text
		hits int
	}{
		{event.Glob{Pattern: "*.py"}, "/workspace/a.py\n/workspace/d/b.py\n", 2},
		{event.Glob{Pattern: "*.py", Path: "d"}, "/workspace/d/b.py\n", 1},
		{event.Glob{Pattern: "*.py", Path: "/workspace/d"}, "/workspace/d/b.py\n", 1},
		{event.Glob{Pattern: "*.go"}, "Nothing was found in /workspace. Hidden files, and those that ignore files name, are " +
			"not searched.\n", 0},
		{event.Glob{Pattern: "*", Path: "/nowhere"}, "error: /nowhere does not exist", 0},
		{event.Grep{Pattern: "^t.o$"}, "/workspace/a.py:2:two\n/workspace/d/b.py:1:two\n", 2},
		{event.Grep{Pattern: "TWO", IgnoreCase: true, Include: "b.*"}, "/workspace/d/b.py:1:two\n", 1},
		{event.Grep{Pattern: "("}, "error: the regular expression \"(\" is not valid: missing closing ): (", 0},
	} {
		got, err := w.Step(t.Context(), event.New(event.FromAgent, c.do))
		f, ok := got.(event.Found)
		if err != nil || !ok {
			t.Fatalf("%+v: %#v, %v", c.do, got, err)
		}
		text := f.Text
		if f.Error {
			text = "error: " + text
		}
		if text != c.want || f.Hits != c.hits || f.More || f.Kind() != c.do.Kind() {
			t.Errorf("%+v: %+v, want %q", c.do, f, c.want)
		}
	}
	step(t, w, event.New(event.FromAgent, event.Run{Command: "cd d; for i in $(seq 300); do echo x$i >> many; done"}))
	got, err := w.Step(t.Context(), event.New(event.FromAgent, event.Grep{Pattern: "x"}))
	f, _ := got.(event.Found)
	if err != nil || f.Hits != 100 || !f.More || !strings.HasPrefix(f.Text, "/workspace/d/many:1:x1\n") ||
		!strings.Contains(f.Text, "[the first 100; there are more") {
		t.Errorf("many: %+v %v", got, err)
	}
}
