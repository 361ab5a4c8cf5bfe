package workspace_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/workspace"
)

// did returns what the editor says, with "error: " before it if it says that nothing was done.
func did(t *testing.T, w *workspace.Workspace, b event.Body) string {
	t.Helper()
	got, err := w.Step(t.Context(), event.New(event.FromAgent, b))
	if err != nil {
		t.Fatalf("%+v: %v", b, err)
	}
	text, failed := "", false
	switch r := got.(type) {
	case event.Viewed:
		text, failed = r.Text, r.Error
	case event.Edited:
		text, failed = r.Text, r.Error
	case event.Error:
		return r.Code + ": " + r.Text
	default:
		t.Fatalf("%+v: %#v", b, got)
	}
	if failed {
		text = "error: " + text
	}
	return text
}

func TestEdit(t *testing.T) {
	w := open(t, isolated(t), sandbox.Spec{}, workspace.Options{Dir: "/tmp"})
	edit := func(command, text, old string, line int) event.Edit {
		return event.Edit{Command: command, Path: "/tmp/f", Text: text, Old: old, Line: line}
	}
	for i, c := range []struct {
		do   event.Body
		want string // the beginning
		file string
	}{
		{edit("undo_edit", "", "", 0), "error: there is no change of /tmp/f to undo", ""},
		{edit("create", "a\nb\n", "", 0), "Created /tmp/f.", "a\nb\n"},
		{edit("create", "x", "", 0), "error: /tmp/f exists already", "a\nb\n"},
		{edit("str_replace", "c", "a", 0), "Changed /tmp/f.", "c\nb\n"},
		{edit("str_replace", "c", "z", 0), "error: old_str does not occur", "c\nb\n"},
		{edit("insert", "i", "", 1), "Changed /tmp/f.", "c\ni\nb\n"},
		{event.Read{Path: "/tmp/f", Lines: []int{2, 2}}, "Lines of /tmp/f:\n     2\ti\n", "c\ni\nb\n"},
		{event.Read{Path: "f"}, "error: path \"f\" is not absolute; it must begin with /: do you mean /tmp/f?", "c\ni\nb\n"},
		{edit("undo_edit", "", "", 0), "Restored /tmp/f:\n     1\tc\n     2\tb\n", "c\nb\n"},
		{edit("undo_edit", "", "", 0), "Restored", "a\nb\n"},
		{edit("undo_edit", "", "", 0), "Removed /tmp/f", ""},
		{edit("undo_edit", "", "", 0), "error: there is no change", ""},
		{edit("delete", "", "", 0), "invalid_call: there is no command delete", ""},
		{event.Read{Path: "/tmp/" + strings.Repeat("a", 5000)}, "invalid_call: a path has at most", ""},
		{event.Read{Path: "/tmp/\x00"}, "invalid_call: a path has at most", ""},
	} {
		if got := did(t, w, c.do); !strings.HasPrefix(got, c.want) {
			t.Errorf("%d: %+v: %q, want %q", i, c.do, got, c.want)
		}
		if got := step(t, w, run("cat /tmp/f 2>/dev/null")).Output; got != c.file {
			t.Errorf("%d: the file has %q, want %q", i, got, c.file)
		}
	}
	// The directory is that of the actor.
	step(t, w, run("mkdir -p /tmp/sub && cd /tmp/sub && touch here"))
	if got := did(t, w, event.Read{Path: "here"}); !strings.Contains(got, "do you mean /tmp/sub/here?") {
		t.Errorf("in another directory: %q", got)
	}
}

// Ten changes of a file can be undone, in any order of files.
func TestUndo(t *testing.T) {
	w := open(t, isolated(t), sandbox.Spec{}, workspace.Options{})
	for _, f := range []string{"/tmp/a", "/tmp/b"} {
		did(t, w, event.Edit{Command: event.EditCreate, Path: f, Text: "0\n"})
		for i := range 12 {
			did(t, w, event.Edit{Command: event.EditReplace, Path: f, Old: fmt.Sprint(i), Text: fmt.Sprint(i + 1)})
		}
	}
	for i := 11; i >= 2; i-- {
		for _, f := range []string{"/tmp/a", "/tmp/b"} {
			got := did(t, w, event.Edit{Command: event.EditUndo, Path: f})
			if !strings.Contains(got, fmt.Sprintf("\t%d\n", i)) {
				t.Errorf("%s to %d: %q", f, i, got)
			}
		}
	}
	undo := event.Edit{Command: event.EditUndo, Path: "/tmp/a"}
	if got := did(t, w, undo); !strings.Contains(got, "no change of /tmp/a") {
		t.Errorf("the eleventh: %q", got)
	}
	// An undo that fails can be done later.
	did(t, w, event.Edit{Command: event.EditInsert, Path: "/tmp/a", Text: "x"})
	step(t, w, run("mv /tmp/a /tmp/c && mkdir /tmp/a"))
	if got := did(t, w, undo); !strings.HasPrefix(got, "error: ") {
		t.Errorf("of a folder: %q", got)
	}
	step(t, w, run("rmdir /tmp/a && mv /tmp/c /tmp/a"))
	if got := did(t, w, undo); !strings.HasPrefix(got, "Restored /tmp/a:\n     1\t2\n") {
		t.Errorf("later: %q", got)
	}
}

// Actors may edit at the same time.
func TestEditTogether(t *testing.T) {
	w := open(t, isolated(t), sandbox.Spec{}, workspace.Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			f := fmt.Sprintf("/tmp/%d", i%4)
			did(t, w, event.Edit{Command: event.EditCreate, Path: f, Text: "a\n"})
			did(t, w, event.Edit{Command: event.EditInsert, Path: f, Text: "b\n"})
			did(t, w, event.Edit{Command: event.EditUndo, Path: f})
		})
	}
	wg.Wait()
	if out := step(t, w, run("cat /tmp/[0-3] | grep -vx '[ab]'; ls /tmp/.edit* 2>/dev/null")).Output; out != "" {
		t.Errorf("%q", out)
	}
}

func TestNoEditor(t *testing.T) {
	w := open(t, fake.New(fake.Options{}), sandbox.Spec{}, workspace.Options{})
	if got := did(t, w, event.Read{Path: "/f"}); got != "unsupported: this sandbox has no editor; use the shell" {
		t.Errorf("%q", got)
	}
	gone := workspace.New(func(context.Context) (sandbox.Sandbox, error) { return nil, sandbox.ErrGone },
		workspace.Options{})
	if _, err := gone.Step(t.Context(), event.New(event.FromAgent, event.Read{Path: "/f"})); err == nil {
		t.Error("no error of a sandbox that is gone")
	}
}

// An undo takes back the change of the file that was changed, and nothing that others have done since.
func TestUndoOfOthers(t *testing.T) {
	w := open(t, isolated(t), sandbox.Spec{Dir: "/workspace"}, workspace.Options{})
	do := func(command string) {
		step(t, w, event.New(event.FromAgent, event.Run{Command: command}))
	}
	cat := func(name string) string {
		return step(t, w, event.New(event.FromAgent, event.Run{Args: []string{"cat", name}})).Output
	}
	undo := func(name string) string { return did(t, w, event.Edit{Command: "undo_edit", Path: name}) }
	do("mkdir -p /a/b; ln -s /a/b /l; printf inner > /a/x; printf outer > /x")
	if got := did(t, w, event.Edit{Command: "str_replace", Path: "/l/../x", Old: "inner", Text: "changed"}); !strings.HasPrefix(got,
		"Changed /l/../x.") || cat("/a/x") != "changed" {
		t.Fatal(got)
	}
	if got := undo("/x"); !strings.HasPrefix(got, "error: there is no change") || cat("/x") != "outer" {
		t.Errorf("undo of another file: %q, %q", got, cat("/x"))
	}
	do("printf more >> /a/x")
	if got := undo("/l/../x"); !strings.Contains(got, "has changed since") || cat("/a/x") != "changedmore" {
		t.Errorf("undo after another change: %q, %q", got, cat("/a/x"))
	}
	do("printf changed > /a/x")
	if got := undo("/l/../x"); !strings.HasPrefix(got, "Restored") || cat("/a/x") != "inner" {
		t.Errorf("undo: %q, %q", got, cat("/a/x"))
	}
	did(t, w, event.Edit{Command: "create", Path: "/new", Text: "mine"})
	do("printf theirs > /new")
	if got := undo("/new"); !strings.Contains(got, "has changed since") || cat("/new") != "theirs" {
		t.Errorf("undo of a new file: %q, %q", got, cat("/new"))
	}
}
