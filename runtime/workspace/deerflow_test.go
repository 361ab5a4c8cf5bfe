package workspace_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/docker"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/workspace"
)

type a = map[string]any

// everywhere runs a test with each driver's sandbox, in which files are put.
func everywhere(t *testing.T, files fstest.MapFS, o workspace.Options, f func(t *testing.T, w *workspace.Workspace, sb sandbox.Sandbox)) {
	for _, name := range []string{"local", "none", "docker"} {
		t.Run(name, func(t *testing.T) {
			var d interface {
				sandbox.Driver
				Close() error
			}
			spec := sandbox.Spec{Dir: "/workspace"}
			switch name {
			case "local":
				d = local.New()
				if err := d.Probe(t.Context()); err != nil && os.Getenv("EVALRUN_TEST_LOCAL") == "" {
					t.Skip("needs the sandbox driver: ", err)
				}
			case "none":
				d = local.NewUnisolated()
			case "docker":
				if os.Getenv("EVALRUN_TEST_DOCKER") == "" {
					t.Skip("needs Docker: set EVALRUN_TEST_DOCKER=1")
				}
				d, spec.Image = docker.New(docker.Options{}), sandbox.Image{Ref: "evalrun-test/bookworm:1"}
				spec.Volumes = []sandbox.Volume{{Name: "ro", Path: "/ro", ReadOnly: true}}
				if _, err := d.Prepare(t.Context(), spec.Image); err != nil {
					t.Fatal(err)
				}
			}
			t.Cleanup(func() { d.Close() })
			sb, err := d.Create(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { sb.Close() })
			if err := sb.Put(t.Context(), "/", files); err != nil {
				t.Fatal(err)
			}
			f(t, workspace.New(func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, o), sb)
		})
	}
}

// called returns the result of a call.
func called(t *testing.T, w *workspace.Workspace, name string, args a) event.ToolResult {
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
	return r
}

// A vector is a call and its result.
type vector struct {
	tool string
	args a
	want string // "!" before an error; the whole text, or the beginning if it ends with …
}

func play(t *testing.T, w *workspace.Workspace, list []vector) {
	t.Helper()
	for i, c := range list {
		r := called(t, w, c.tool, c.args)
		got := event.PlainText(r.Parts)
		if r.Error {
			got = "!" + strings.TrimPrefix(got, "Error: ")
		}
		if want, begins := strings.CutSuffix(c.want, "…"); got != want && !(begins && strings.HasPrefix(got, want)) {
			t.Errorf("%d: %s %.200v:\ngot  %.300q\nwant %.300q", i, c.tool, c.args, got, c.want)
		}
	}
}

// Each tool, with its limits and the gate that a file has to be read before it is changed.
func TestDeerFlow(t *testing.T) {
	long := strings.Repeat("x", 25_000)
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s), Mode: 0o644} }
	everywhere(t, fstest.MapFS{"workspace/t/a.py": text("one\ntwo\nthree\n"), "workspace/t/d/b.py": text("two\n"),
		"workspace/t/d/e/c.py": text(""), "workspace/t/.git/config": text("two"), "workspace/t/crlf": text("a\r\nb\r\n"),
		"workspace/t/Error": text("Error: no\n"), "workspace/here": text(""),
		"workspace/t/empty": {Mode: fs.ModeDir | 0o755}, "workspace/t/bin": text("a\x00b"),
	}, workspace.Options{Dir: "/workspace"}, func(t *testing.T, w *workspace.Workspace, _ sandbox.Sandbox) {
		play(t, w, []vector{
			{"bash", a{"command": "pwd; cd /workspace/t; x=1"}, "/workspace\n"},
			{"bash", a{"command": "pwd; echo ${x-unset}"}, "/workspace\nunset\n"},
			{"bash", a{"command": "echo out; echo err >&2; exit 3"}, "out\nStd Error:\nerr\nExit Code: 3"},
			{"bash", a{"command": "true"}, "(no output)"},
			{"bash", a{"command": "exit 1"}, "Exit Code: 1"},
			{"bash", a{"command": "kill -9 $$"}, "The command was ended by signal SIGKILL."},
			{"bash", a{"command": " "}, "!the command is empty"},
			{"bash", a{"command": strings.Repeat("x", 10_001)}, "!the command is longer than 10000 characters…"},
			{"bash", a{}, "!command is missing"},
			{"bash", a{"command": 1}, "!command has the wrong type, number"},
			{"bash", a{"command": "ls", "timeout": 1}, `!there is no argument "timeout"`},
			{"ls", a{"path": "/workspace/t"}, "/workspace/t/Error\n/workspace/t/a.py\n/workspace/t/bin\n/workspace/t/crlf\n/workspace/t/d/\n/workspace/t/d/b.py\n/workspace/t/d/e/\n/workspace/t/empty/"},
			{"ls", a{"path": "/workspace/t/empty"}, "(empty)"},
			{"ls", a{"path": "/workspace/nowhere"}, "!/workspace/nowhere does not exist"},
			{"ls", a{"path": "w"}, `!path "w" is not absolute…`},
			{"glob", a{"path": "/workspace/t", "pattern": "*.py"}, "Found 3 paths under /workspace/t\n1. /workspace/t/a.py\n2. /workspace/t/d/b.py\n3. /workspace/t/d/e/c.py"},
			{"glob", a{"path": "/workspace/t", "pattern": "**/*.py", "max_results": 1}, "Found 1 paths under /workspace/t (showing first 1)\n1. /workspace/t/a.py\n…"},
			{"glob", a{"path": "/workspace/t", "pattern": "d", "include_dirs": true}, "Found 1 paths under /workspace/t\n1. /workspace/t/d/"},
			{"glob", a{"path": "/workspace/t", "pattern": "config"}, "No files matched under /workspace/t"},
			{"grep", a{"path": "/workspace/t", "pattern": "TWO"}, "Found 2 matches under /workspace/t\n/workspace/t/a.py:2: two\n/workspace/t/d/b.py:1: two"},
			{"grep", a{"path": "/workspace/t", "pattern": "TWO", "case_sensitive": true}, "No matches found under /workspace/t"},
			{"grep", a{"path": "/workspace/t", "pattern": "t.o", "literal": true}, "No matches found under /workspace/t"},
			{"grep", a{"path": "/workspace/t", "pattern": "two", "glob": "d/*.py"}, "Found 1 matches under /workspace/t\n/workspace/t/d/b.py:1: two"},
			{"grep", a{"path": "/workspace/t/.git/config", "pattern": "two"}, "Found 1 matches under /workspace/t/.git/config\n/workspace/t/.git/config:1: two"},
			{"grep", a{"path": "/workspace/t", "pattern": "("}, "!the regular expression…"},
			{"str_replace", a{"path": "/workspace/t/a.py", "old_str": "two", "new_str": "2"}, "!/workspace/t/a.py was not read yet…"},
			{"write_file", a{"path": "/workspace/t/a.py", "content": "x"}, "!/workspace/t/a.py was not read yet…"},
			{"read_file", a{"path": "/workspace/t/a.py"}, "one\ntwo\nthree"},
			{"read_file", a{"path": "/workspace/t/a.py", "start_line": 2}, "two\nthree"},
			{"read_file", a{"path": "/workspace/t/a.py", "end_line": 2}, "one\ntwo"},
			{"read_file", a{"path": "/workspace/t/a.py", "start_line": 2, "end_line": 2}, "two"},
			{"read_file", a{"path": "/workspace/t/a.py", "start_line": 3, "end_line": 9}, "three"},
			{"read_file", a{"path": "/workspace/t/a.py", "start_line": 4}, "(the file has 3 lines)"},
			{"read_file", a{"path": "/workspace/t/a.py", "start_line": 0}, "(start_line must be at least 1)"},
			{"read_file", a{"path": "/workspace/t/a.py", "end_line": 0}, "(end_line must be at least 1)"},
			{"read_file", a{"path": "/workspace/t/a.py", "start_line": 2, "end_line": 1}, "(start_line is after end_line)"},
			{"read_file", a{"path": "/workspace/t/d/e/c.py"}, "(empty)"},
			{"read_file", a{"path": "/workspace/t/d"}, "!/workspace/t/d is a folder…"},
			{"str_replace", a{"path": "/workspace/t/a.py", "old_str": "two", "new_str": "2"}, "OK"},
			{"str_replace", a{"path": "/workspace/t/a.py", "old_str": "2", "new_str": "two"}, "!/workspace/t/a.py has changed since it was read…"},
			{"read_file", a{"path": "/workspace/t/a.py"}, "one\n2\nthree"},
			{"str_replace", a{"path": "/workspace/t/a.py", "old_str": "e", "new_str": "E"}, "!old_str occurs 3 times, in lines 1, 3, 3…"},
			{"str_replace", a{"path": "/workspace/t/a.py", "old_str": "e", "new_str": "E", "replace_all": true}, "OK"},
			{"str_replace", a{"path": "/workspace/t/a.py", "old_str": "", "new_str": "E"}, "OK"},
			{"read_file", a{"path": "/workspace/t/a.py"}, "onE\n2\nthrEE"},
			{"str_replace", a{"path": "/workspace/t/a.py", "old_str": "zzz", "new_str": "E"}, "!old_str does not occur…"},
			{"read_file", a{"path": "/workspace/t/crlf"}, "a\nb"},
			{"str_replace", a{"path": "/workspace/t/crlf", "old_str": "a\nb", "new_str": "c\nd"}, "OK"},
			{"bash", a{"command": "od -c /workspace/t/crlf | head -1 | tr -s ' '"}, "0000000 c \\r \\n d \\r \\n\n"},
			{"read_file", a{"path": "/workspace/t/Error"}, "Error: no…"},
			{"write_file", a{"path": "/workspace/t/Error", "content": "more\n", "append": true}, "OK"},
			{"bash", a{"command": "cat /workspace/t/Error"}, "Error: no\nmore\n…"},
			{"write_file", a{"path": "/workspace/t/new/f", "content": long}, "OK"},
			{"bash", a{"command": "stat -c %s /workspace/t/new/f"}, "25000\n"},
			{"write_file", a{"path": "/workspace/t/new/g", "content": strings.Repeat("x", 81_920)}, "OK"},
			{"write_file", a{"path": "/workspace/t/new/h", "content": strings.Repeat("x", 81_921)}, "!the text has 81921 bytes…"},
			{"write_file", a{"path": "/workspace/t/new", "content": ""}, "!/workspace/t/new is a folder"},
			{"write_file", a{"path": "/workspace/t/new/f"}, "!content is missing"},
			{"read_file", a{"path": "/workspace/t/bin"}, "!/workspace/t/bin: this is a binary file…"},
			{"write_file", a{"path": "/workspace/t/bin", "content": "a"}, "OK"}, // what cannot be read needs not be
			{"glob", a{"path": "/workspace/t", "pattern": "*.py", "max_results": -1}, "Found 3 paths…"},
			{"glob", a{"path": "/workspace/t", "pattern": "*.py", "max_results": 100_000}, "Found 3 paths…"},
			{"read_file", a{"path": "/workspace/t/../t/a.py"}, "!path…"},
			{"str_replace", a{"path": "/workspace/t/a.py", "old_str": strings.Repeat("x", 10_000), "new_str": "y"}, "!old_str does not occur…"},
			{"grep", a{"path": "/workspace/t", "pattern": "(" + strings.Repeat("x", 10_000)}, "!the regular expression…"},
		})
		if got := event.PlainText(called(t, w, "read_file", a{"path": "/workspace/t/new/g"}).Parts); len(got) > 50_000 ||
			!strings.HasSuffix(got, " of 81920 chars. Use start_line and end_line to read a part] ...") {
			t.Errorf("cut at the end: %d, %q", len(got), got[max(0, len(got)-100):])
		}
		if got := event.PlainText(called(t, w, "grep", a{"path": "/workspace/t", "pattern": "(" + strings.Repeat("x", 10_000)}).Parts); len(got) > 2000 ||
			!strings.Contains(got, " chars skipped] ...") {
			t.Errorf("a long error: %d characters", len(got))
		}
		if sets := w.ToolSets(); len(sets["deerflow"]) != 7 {
			t.Errorf("%d tools", len(sets["deerflow"]))
		}
		for _, tool := range w.ToolSets()["deerflow"] {
			if !json.Valid(tool.Schema) {
				t.Errorf("%s: %s", tool.Name, tool.Schema)
			}
		}
	})
}

// DeerFlow's own folders: they are real, and paths, links and writes stay in them.
func TestUserData(t *testing.T) {
	link := func(to string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(to), Mode: 0o777 | fs.ModeSymlink}
	}
	everywhere(t, fstest.MapFS{"mnt/user-data/workspace/etc": link("/etc"), "mnt/user-data/workspace/up": link("../../../workspace"),
		"mnt/user-data/workspace/out": link("../outputs"), "mnt/user-data/other/f": {Data: []byte("x")},
		"mnt/user-data-backup/x": {Data: []byte("secret")}, "opt/skills/sing/SKILL.md": {Data: []byte("Sing.\n"), Mode: 0o644},
	}, workspace.Options{Dir: "/workspace", Skills: "/opt/skills"}, func(t *testing.T, w *workspace.Workspace, sb sandbox.Sandbox) {
		play(t, w, []vector{
			{"bash", a{"command": "ls -ld /mnt/user-data/workspace /mnt/user-data/uploads /mnt/user-data/outputs | cut -c1-10; pwd"},
				"drwxrwxrwx\ndrwxrwxrwx\ndrwxrwxrwx\n/workspace\n"},
			{"write_file", a{"path": "/mnt/user-data/workspace/a/b", "content": "text\n"}, "OK"},
			{"bash", a{"command": "cd /mnt/user-data/workspace/a; cat b; pwd"}, "text\n/mnt/user-data/workspace/a\n"},
			{"read_file", a{"path": "/mnt/user-data/workspace/../../x"}, `!path "/mnt/user-data/workspace/../../x" must not have ..`},
			{"ls", a{"path": "/workspace/.."}, `!path "/workspace/.." must not have ..`},
			{"write_file", a{"path": "/mnt/user-data/../x", "content": ""}, "!path…"},
			{"glob", a{"path": "/mnt/user-data/workspace", "pattern": "../*"}, "!the glob…"},
			{"read_file", a{"path": "/mnt/user-data/workspace/etc/passwd"}, "!/mnt/user-data/workspace/etc/passwd: permission denied…"},
			{"ls", a{"path": "/mnt/user-data/workspace/etc"}, "!/mnt/user-data/workspace/etc: permission denied…"},
			{"grep", a{"path": "/mnt/user-data/workspace/etc", "pattern": "root"}, "!/mnt/user-data/workspace/etc: permission denied…"},
			{"grep", a{"path": "/mnt/user-data/workspace", "pattern": "root"}, "No matches found under /mnt/user-data/workspace"},
			{"write_file", a{"path": "/mnt/user-data/workspace/up/f", "content": ""}, "!/mnt/user-data/workspace/up/f: permission denied…"},
			{"write_file", a{"path": "/mnt/user-data/workspace/out/f", "content": "kept"}, "OK"},
			{"read_file", a{"path": "/mnt/user-data/outputs/f"}, "kept"},
			{"read_file", a{"path": "/mnt/user-data/other/f"}, "!/mnt/user-data/other/f: permission denied…"},
			{"write_file", a{"path": "/mnt/user-data/f", "content": ""}, "!/mnt/user-data/f: permission denied…"},
			{"glob", a{"path": "/mnt/user-data", "pattern": "b"}, "Found 1 paths under /mnt/user-data\n1. /mnt/user-data/workspace/a/b"},
			{"read_file", a{"path": "/mnt/skills/public/sing/SKILL.md"}, "Sing."},
			{"bash", a{"command": "cat /mnt/skills/public/sing/SKILL.md"}, "Sing.\n"},
			{"write_file", a{"path": "/mnt/skills/public/new", "content": ""}, "!/mnt/skills/public/new: read-only file system"},
			{"str_replace", a{"path": "/mnt/skills/public/sing/SKILL.md", "old_str": "Sing", "new_str": "Dance"}, "!/mnt/skills/public/sing/SKILL.md: read-only file system"},
		})
		for _, tool := range w.ToolSets()["deerflow"] {
			if has := strings.Contains(tool.Description, "/mnt/skills/public"); has != (tool.Name == "read_file") {
				t.Errorf("%s: %s", tool.Name, tool.Description)
			}
		}
		// A real mount where the driver can, else it is the tools that do not write there.
		x := called(t, w, "bash", a{"command": "touch /mnt/skills/public/sing/x 2>&1 | tail -c 22; touch /opt/skills/y"})
		if text := event.PlainText(x.Parts); strings.HasPrefix(t.Name(), "TestUserData/local") != strings.Contains(text, "Read-only file system") {
			t.Errorf("writing from a command: %q", text)
		}
		readOnly := "/usr/x"
		if strings.HasSuffix(t.Name(), "/docker") {
			readOnly = "/ro/x"
		}
		root := sandbox.HostRootOf(sb)
		if root == "" {
			play(t, w, []vector{ // the sandbox is the boundary
				{"read_file", a{"path": "/mnt/user-data-backup/x"}, "secret"},
				{"write_file", a{"path": readOnly, "content": "x"}, "!" + readOnly + ": read-only file system"}, // says the kernel
				{"bash", a{"command": "cat /mnt/user-data-backup/x"}, "secret"},
			})
			return
		}
		play(t, w, []vector{
			{"bash", a{"command": "cat /mnt/user-data-backup/x"}, "!the command is refused, because nothing is isolated here: /mnt/user-data-backup/x…"},
			{"read_file", a{"path": "/mnt/user-data-backup/x"}, "!/mnt/user-data-backup/x: permission denied…"},
			{"read_file", a{"path": "/etc/passwd"}, "!/etc/passwd: permission denied…"},
			{"bash", a{"command": "cd .."}, "!the command is refused…"},
			{"bash", a{"command": "rm -rf /"}, "!the command is refused, because nothing is isolated here: rm"},
			// A script finds the files that it names, and nobody sees where they are.
			{"write_file", a{"path": "/mnt/user-data/workspace/s", "content": "cat /mnt/user-data/workspace/a/b; echo $0"}, "OK"},
			{"bash", a{"command": "sh /mnt/user-data/workspace/s"}, "text\n/mnt/user-data/workspace/s\n"},
			{"read_file", a{"path": "/mnt/user-data/workspace/s"}, "cat /mnt/user-data/workspace/a/b; echo $0"},
			{"grep", a{"path": "/mnt/user-data/workspace", "pattern": "echo"},
				"Found 1 matches under /mnt/user-data/workspace\n/mnt/user-data/workspace/s:1: cat /mnt/user-data/workspace/a/b; echo $0"},
			{"str_replace", a{"path": "/mnt/user-data/workspace/s", "old_str": "/mnt/user-data/workspace/a/b", "new_str": "/mnt/user-data/workspace/a/c"}, "OK"},
			{"bash", a{"command": "sh /mnt/user-data/workspace/s; echo at $HOME; ls -d $PWD >&2"},
				"/mnt/user-data/workspace/s\nat /root\nStd Error:\ncat: /mnt/user-data/workspace/a/c: No such file or directory\n/workspace\n"},
			{"write_file", a{"path": "/workspace/plain", "content": "/workspace"}, "OK"},
			{"bash", a{"command": "wc -c < /workspace/plain"}, "10\n"}, // a task's own files are never changed
		})
		for _, act := range []event.Body{event.Run{Command: "pwd; cat /workspace/plain; nothere"}, event.Read{Path: "/workspace"},
			event.Glob{Pattern: "*"}, event.Grep{Pattern: "workspace", Path: "/mnt"}, event.Read{Path: "/etc/passwd"}} {
			got, err := w.Step(t.Context(), event.New(event.FromAgent, act))
			raw, _ := json.Marshal(got)
			if err != nil || strings.Contains(string(raw), root) || !strings.Contains(string(raw), "/workspace") &&
				!strings.Contains(string(raw), "/etc/passwd does not exist") {
				t.Errorf("%#v: %s %v", act, raw, err)
			}
		}
	})
}

// Where the options name no directory, DeerFlow's commands begin in its own.
func TestUserDataDir(t *testing.T) {
	everywhere(t, fstest.MapFS{}, workspace.Options{}, func(t *testing.T, w *workspace.Workspace, _ sandbox.Sandbox) {
		play(t, w, []vector{{"bash", a{"command": "pwd"}, "/mnt/user-data/workspace\n"}})
	})
}

// Long results are kept in files.
func TestBudget(t *testing.T) {
	everywhere(t, fstest.MapFS{}, workspace.Options{Dir: "/workspace"}, func(t *testing.T, w *workspace.Workspace, sb sandbox.Sandbox) {
		lines := func(n int) string { return fmt.Sprintf(`for i in $(seq 900); do printf '%%0%dd\n' $i; done`, n) }
		play(t, w, []vector{{"bash", a{"command": "head -c 12000 /dev/zero | tr '\\0' x"}, strings.Repeat("x", 12_000)}})
		got := event.PlainText(called(t, w, "bash", a{"command": lines(14)}).Parts) // 13,500 characters
		head, rest, _ := strings.Cut(got, "[... ")
		note, tail, _ := strings.Cut(rest, "]\n")
		var left, all int
		var name string
		if strings.Count(head, "\n") != 133 || strings.Count(tail, "\n") != 66 || !strings.HasSuffix(tail, "00000000000900\n") {
			t.Errorf("the synopsis: %d lines, %d lines: %s", strings.Count(head, "\n"), strings.Count(tail, "\n"), got)
		}
		if _, err := fmt.Sscanf(note, "%d characters are left out. The whole result has %d characters and is in %s", &left, &all,
			&name); err != nil || left != 13_500-15*(133+66) || all != 13_500 {
			t.Errorf("%q: %d %d %q %v", note, left, all, name, err)
		}
		name = strings.TrimSuffix(name, ":")
		kept := event.PlainText(called(t, w, "read_file", a{"path": name}).Parts)
		if !strings.HasPrefix(name, "/mnt/user-data/outputs/tool-results/bash-") || !strings.HasSuffix(name, ".log") || len(kept) != 13_499 ||
			!strings.HasPrefix(kept, head) {
			t.Errorf("%s has %d characters: %.100q", name, len(kept), kept)
		}
		if got := event.PlainText(called(t, w, "bash", a{"command": lines(29)}).Parts); !strings.Contains(got, " 19999 characters ") {
			t.Errorf("a result that is cut before: %.3000s", got)
		}
		// Where nothing can be written, more than 30,000 characters are cut, and no less.
		files := fstest.MapFS{}
		for i := range 400 {
			files[strings.Repeat("d", 60)+strconv.Itoa(i)] = &fstest.MapFile{Data: []byte(strings.Repeat("y", 100)), Mode: 0o644}
		}
		if err := sb.Put(t.Context(), "/workspace/many", files); err != nil {
			t.Fatal(err)
		}
		play(t, w, []vector{{"bash", a{"command": "rm -r /mnt/user-data/outputs; echo > /mnt/user-data/outputs"}, "(no output)"}})
		for n, cut := range map[int]bool{150: false, 400: true} {
			got = event.PlainText(called(t, w, "grep", a{"path": "/workspace/many", "pattern": "y", "max_results": n}).Parts)
			if strings.Contains(got, "could not be kept") != cut || cut && len(got) > 11_200 || !cut && len(got) < 20_000 {
				t.Errorf("%d hits: %d characters", n, len(got))
			}
		}
	})
}

// Each command's result says what the audit has found. Only without isolation it has consequences.
func TestAudited(t *testing.T) {
	everywhere(t, fstest.MapFS{}, workspace.Options{Dir: "/workspace"}, func(t *testing.T, w *workspace.Workspace, sb sandbox.Sandbox) {
		isolated := sandbox.HostRootOf(sb) == ""
		for _, c := range []struct{ command, data, text string }{
			{"true", `{"audit":{"verdict":"pass","ran":true}}`, "(no output)"},
			{"echo x > f; chmod 777 f", `{"audit":{"verdict":"warn","rules":["chmod-777"],"ran":true}}`,
				"(no output)\n(Note: chmod 777 lets every user write.)"},
			{"", `{"audit":{"verdict":"block","rules":["empty"],"ran":false}}`, "Error: the command is empty"},
			{"echo \x00", `{"audit":{"verdict":"block","rules":["nul"],"ran":false}}`, "Error: the command has a NUL byte"},
			{strings.Repeat("ä", 10_001), `{"audit":{"verdict":"block","rules":["too-long"],"ran":false}}`, "Error: the command is longer"},
			{"echo true | sh", `{"audit":{"verdict":"block","rules":["pipe-to-shell"],"ran":true}}`, "(no output)"},
		} {
			if !isolated && strings.HasSuffix(c.command, "| sh") {
				c.data, c.text = strings.Replace(c.data, `"ran":true`, `"ran":false`, 1), "Error: the command is refused"
			}
			r := called(t, w, "bash", a{"command": c.command})
			if got := event.PlainText(r.Parts); string(r.Data) != c.data || !strings.HasPrefix(got, c.text) {
				t.Errorf("%.40s: %s %q", c.command, r.Data, got)
			}
		}
		if isolated {
			return
		}
		r := called(t, w, "bash", a{"command": "cat /etc/passwd"})
		if string(r.Data) != `{"audit":{"verdict":"block","rules":["guard"],"ran":false}}` {
			t.Errorf("%s", r.Data)
		}
	})
}

// Nothing of this process's environment reaches commands, with any driver.
func TestEnvironment(t *testing.T) {
	t.Setenv("EVALRUN_TEST_API_KEY", "hush-hush-hush")
	t.Setenv("SSH_AUTH_SOCK", "/hush-hush-hush")
	everywhere(t, fstest.MapFS{}, workspace.Options{Dir: "/workspace"}, func(t *testing.T, w *workspace.Workspace, _ sandbox.Sandbox) {
		if got := event.PlainText(called(t, w, "bash", a{"command": "env"}).Parts); strings.Contains(got, "hush") ||
			!strings.Contains(got, "HOME=/root") {
			t.Errorf("%s", got)
		}
	})
}

// A sandbox without file operations says so, and a command works.
func TestDeerFlowWithout(t *testing.T) {
	w := open(t, fake.New(fake.Options{}), sandbox.Spec{}, workspace.Options{})
	play(t, w, []vector{{"ls", a{"path": "/"}, "!this sandbox has no editor…"}})
}

// A folder of skills that leads elsewhere shows nothing that was hidden.
func TestSkillsElsewhere(t *testing.T) {
	everywhere(t, fstest.MapFS{"opt/skills": {Data: []byte("/proc"), Mode: 0o777 | fs.ModeSymlink}},
		workspace.Options{Dir: "/workspace", Skills: "/opt/skills"}, func(t *testing.T, w *workspace.Workspace, sb sandbox.Sandbox) {
			if sandbox.HostRootOf(sb) != "" {
				play(t, w, []vector{{"read_file", a{"path": "/mnt/skills/public/cmdline"}, "!/mnt/skills/public/cmdline: permission denied…"}})
				return
			}
			got := event.PlainText(called(t, w, "bash", a{"command": "cd /mnt/skills/public; cmp cmdline /proc/cmdline || cat cmdline swaps"}).Parts)
			host, _ := os.ReadFile("/proc/cmdline")
			if strings.Contains(got, strings.TrimSpace(string(host))) {
				t.Errorf("%s", got)
			}
		})
}
