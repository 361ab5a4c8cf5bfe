package workspace_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/fake"
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

// deerflowCall returns the text of a call, with "!" before an error.
func deerflowCall(t *testing.T, w *workspace.Workspace, name string, args map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.Step(t.Context(), event.New(event.FromAgent, event.ToolCall{Name: name, Args: raw}))
	r, ok := got.(event.ToolResult)
	if err != nil || !ok || r.Name != name {
		t.Fatalf("%s %s: %#v %v", name, raw, got, err)
	}
	text := event.PlainText(r.Parts)
	if r.Error != strings.HasPrefix(text, "Error: ") {
		t.Errorf("%s: an error is %v: %q", name, r.Error, text)
	}
	return text
}

type a = map[string]any

func TestDeerFlow(t *testing.T) {
	w := open(t, isolated(t), sandbox.Spec{Dir: "/workspace"}, workspace.Options{})
	put(t, w, map[string]string{"/w/a.py": "one\ntwo\nthree\n", "/w/d/b.py": "two\n", "/w/d/e/c.py": "", "/w/.git/config": "two",
		"/w/crlf": "a\r\nb\r\n", "/w/Error": "Error: no\n", "/workspace/here": "", "/w/empty/x": ""})
	step(t, w, event.New(event.FromAgent, event.Run{Args: []string{"rm", "/w/empty/x"}}))
	long := strings.Repeat("x", 25_000)
	for i, c := range []struct {
		tool string
		args a
		want string // the whole text; the beginning if it ends with …
	}{
		{"bash", a{"command": "pwd; cd /w; x=1"}, "/workspace\n"},
		{"bash", a{"command": "pwd; echo ${x-unset}"}, "/workspace\nunset\n"},
		{"bash", a{"command": "echo out; echo err >&2; exit 3"}, "out\nStd Error:\nerr\nExit Code: 3"},
		{"bash", a{"command": "true"}, "(no output)"},
		{"bash", a{"command": "exit 1"}, "Exit Code: 1"},
		{"bash", a{"command": "kill -9 $$"}, "The command was ended by signal SIGKILL."},
		{"bash", a{"command": " "}, "Error: the command is empty"},
		{"bash", a{"command": strings.Repeat("x", 10_001)}, "Error: the command is longer than 10000 characters…"},
		{"bash", a{}, "Error: command is missing"},
		{"bash", a{"command": 1}, "Error: command has the wrong type, number"},
		{"bash", a{"command": "ls", "timeout": 1}, `Error: there is no argument "timeout"`},
		{"ls", a{"path": "/w"}, "/w/Error\n/w/a.py\n/w/crlf\n/w/d/\n/w/d/b.py\n/w/d/e/\n/w/empty/"},
		{"ls", a{"path": "/w/empty"}, "(empty)"},
		{"ls", a{"path": "/nowhere"}, "Error: /nowhere does not exist"},
		{"ls", a{"path": "w"}, `Error: path "w" is not absolute…`},
		{"glob", a{"path": "/w", "pattern": "*.py"}, "Found 3 paths under /w\n1. /w/a.py\n2. /w/d/b.py\n3. /w/d/e/c.py"},
		{"glob", a{"path": "/w", "pattern": "**/*.py", "max_results": 1}, "Found 1 paths under /w (showing first 1)\n1. /w/a.py\n…"},
		{"glob", a{"path": "/w", "pattern": "d", "include_dirs": true}, "Found 1 paths under /w\n1. /w/d/"},
		{"glob", a{"path": "/w", "pattern": "config"}, "No files matched under /w"},
		{"grep", a{"path": "/w", "pattern": "TWO"}, "Found 2 matches under /w\n/w/a.py:2: two\n/w/d/b.py:1: two"},
		{"grep", a{"path": "/w", "pattern": "TWO", "case_sensitive": true}, "No matches found under /w"},
		{"grep", a{"path": "/w", "pattern": "t.o", "literal": true}, "No matches found under /w"},
		{"grep", a{"path": "/w", "pattern": "two", "glob": "d/*.py"}, "Found 1 matches under /w\n/w/d/b.py:1: two"},
		{"grep", a{"path": "/w/.git/config", "pattern": "two"}, "Found 1 matches under /w/.git/config\n/w/.git/config:1: two"},
		{"grep", a{"path": "/w", "pattern": "("}, "Error: the regular expression…"},
		{"str_replace", a{"path": "/w/a.py", "old_str": "two", "new_str": "2"}, "Error: /w/a.py was not read yet…"},
		{"write_file", a{"path": "/w/a.py", "content": "x"}, "Error: /w/a.py was not read yet…"},
		{"read_file", a{"path": "/w/a.py"}, "one\ntwo\nthree"},
		{"read_file", a{"path": "/w/a.py", "start_line": 2}, "two\nthree"},
		{"read_file", a{"path": "/w/a.py", "end_line": 2}, "one\ntwo"},
		{"read_file", a{"path": "/w/a.py", "start_line": 2, "end_line": 2}, "two"},
		{"read_file", a{"path": "/w/a.py", "start_line": 3, "end_line": 9}, "three"},
		{"read_file", a{"path": "/w/a.py", "start_line": 4}, "(the file has 3 lines)"},
		{"read_file", a{"path": "/w/a.py", "start_line": 0}, "(start_line must be at least 1)"},
		{"read_file", a{"path": "/w/a.py", "end_line": 0}, "(end_line must be at least 1)"},
		{"read_file", a{"path": "/w/a.py", "start_line": 2, "end_line": 1}, "(start_line is after end_line)"},
		{"read_file", a{"path": "/w/d/e/c.py"}, "(empty)"},
		{"read_file", a{"path": "/w/d"}, "Error: /w/d is a folder…"},
		{"str_replace", a{"path": "/w/a.py", "old_str": "two", "new_str": "2"}, "OK"},
		{"str_replace", a{"path": "/w/a.py", "old_str": "2", "new_str": "two"}, "Error: /w/a.py has changed since it was read…"},
		{"read_file", a{"path": "/w/a.py"}, "one\n2\nthree"},
		{"str_replace", a{"path": "/w/a.py", "old_str": "e", "new_str": "E"}, "Error: old_str occurs 3 times, in lines 1, 3, 3…"},
		{"str_replace", a{"path": "/w/a.py", "old_str": "e", "new_str": "E", "replace_all": true}, "OK"},
		{"str_replace", a{"path": "/w/a.py", "old_str": "", "new_str": "E"}, "OK"},
		{"read_file", a{"path": "/w/a.py"}, "onE\n2\nthrEE"},
		{"str_replace", a{"path": "/w/a.py", "old_str": "zzz", "new_str": "E"}, "Error: old_str does not occur…"},
		{"read_file", a{"path": "/w/crlf"}, "a\nb"},
		{"str_replace", a{"path": "/w/crlf", "old_str": "a\nb", "new_str": "c\nd"}, "OK"},
		{"bash", a{"command": "od -c /w/crlf | head -1 | tr -s ' '"}, "0000000 c \\r \\n d \\r \\n\n"},
		{"read_file", a{"path": "/w/Error"}, "Error: no…"},
		{"write_file", a{"path": "/w/Error", "content": "more\n", "append": true}, "OK"},
		{"bash", a{"command": "cat /w/Error"}, "Error: no\nmore\n…"},
		{"write_file", a{"path": "/w/new/f", "content": long}, "OK"},
		{"bash", a{"command": "stat -c %s /w/new/f"}, "25000\n"},
		{"write_file", a{"path": "/w/new/g", "content": strings.Repeat("x", 81_920)}, "OK"},
		{"write_file", a{"path": "/w/new/h", "content": strings.Repeat("x", 81_921)}, "Error: the text has 81921 bytes…"},
		{"write_file", a{"path": "/w/new", "content": ""}, "Error: /w/new is a folder"},
		{"write_file", a{"path": "/w/new/f"}, "Error: content is missing"},
	} {
		if c.tool == "read_file" && c.args["path"] == "/w/Error" || strings.HasPrefix(c.want, "Error: no\n") {
			raw, _ := json.Marshal(c.args) // an error that is none
			got, err := w.Step(t.Context(), event.New(event.FromAgent, event.ToolCall{Name: c.tool, Args: raw}))
			if r, ok := got.(event.ToolResult); err != nil || !ok || r.Error ||
				!strings.HasPrefix(event.PlainText(r.Parts), strings.TrimSuffix(c.want, "…")) {
				t.Errorf("%d: %#v %v", i, got, err)
			}
			continue
		}
		got := deerflowCall(t, w, c.tool, c.args)
		if want, begins := strings.CutSuffix(c.want, "…"); got != want && !(begins && strings.HasPrefix(got, want)) {
			t.Errorf("%d: %s %.80v:\ngot  %.300q\nwant %.300q", i, c.tool, c.args, got, c.want)
		}
	}
	got := deerflowCall(t, w, "bash", a{"command": "cat /w/new/f"})
	if len(got) > 20_000 || !strings.Contains(got, "x\n... [middle truncated: 5049 chars skipped] ...\nx") {
		t.Errorf("cut in the middle: %d, %.100q", len(got), got)
	}
	deerflowCall(t, w, "bash", a{"command": "cat /w/new/f /w/new/f /w/new/f > /w/new/i"})
	if got = deerflowCall(t, w, "read_file", a{"path": "/w/new/i"}); len(got) > 50_000 ||
		!strings.HasSuffix(got, " of 75000 chars. Use start_line and end_line to read a part] ...") {
		t.Errorf("cut at the end: %d, %q", len(got), got[max(0, len(got)-100):])
	}
	if sets := workspace.ToolSets(); len(sets["deerflow"]) != 7 {
		t.Errorf("%d tools", len(sets["deerflow"]))
	}
	for _, tool := range workspace.ToolSets()["deerflow"] {
		if !json.Valid(tool.Schema) {
			t.Errorf("%s: %s", tool.Name, tool.Schema)
		}
	}
}

// A sandbox without file operations says so, and a command works.
func TestDeerFlowWithout(t *testing.T) {
	w := open(t, fake.New(fake.Options{}), sandbox.Spec{}, workspace.Options{})
	if got := deerflowCall(t, w, "ls", a{"path": "/"}); !strings.HasPrefix(got, "Error: this sandbox has no editor") {
		t.Error(got)
	}
}
