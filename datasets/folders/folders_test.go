package folders_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/folders"
)

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		p := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(p), 0o700)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "secret")
	os.WriteFile(outside, []byte("secret"), 0o600)
	put("b/task.txt", "two")
	put("a/task.txt", "one")
	put("a/sub/task.txt", "a's own")
	put("deep/er/c/task.txt", "three")
	put("none/other.txt", "")
	put(".hidden/task.txt", "")
	os.MkdirAll(filepath.Join(dir, "evil"), 0o700)
	os.Symlink(outside, filepath.Join(dir, "evil", "task.txt"))
	mk := func(name string, fsys fs.FS) (datasets.Task, error) {
		b, err := fs.ReadFile(fsys, "task.txt")
		return datasets.Task{ID: name, Data: b, Files: fsys}, err
	}
	s := folders.New(dir, "task.txt", mk)
	if task, err := s.Task(t.Context(), "deep/er/c"); err != nil || string(task.Data) != "three" {
		t.Errorf("a task by its name: %q, %v", task.Data, err)
	}
	var got []string
	for task, err := range s.Tasks(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		got = append(got, task.ID)
	}
	if fmt.Sprint(got) != "[a b deep/er/c]" {
		t.Errorf("tasks %q; a link that leads out of the folder is none", got)
	}
	if _, err := s.Task(t.Context(), "../a"); !errors.Is(err, datasets.ErrNoTask) {
		t.Errorf("a name outside: %v", err)
	}
	for _, err := range folders.New(dir+"/no", "task.txt", mk).Tasks(t.Context()) {
		if !errors.As(err, new(*datasets.Fatal)) || !strings.Contains(err.Error(), "no such folder") {
			t.Errorf("a missing folder: %v", err)
		}
	}
	same := func(string, fs.FS) (datasets.Task, error) { return datasets.Task{ID: "x"}, nil }
	n := 0
	for _, err := range folders.New(dir, "task.txt", same).Tasks(t.Context()) {
		if n++; n == 2 && !errors.As(err, new(*datasets.Fatal)) {
			t.Errorf("two tasks of one ID: %v", err)
		}
	}
}
