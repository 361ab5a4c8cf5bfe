package launch

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/fsutil"
)

// depth is how many folders down tasks are looked for.
const depth = 3

// Recognise says which benchmarks lie at a path: "harbor:PATH", "terminalbench:PATH", "tasks:PATH".
// A folder with tasks of two formats is two benchmarks.
func Recognise(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if kind := kindOfFile(filepath.Dir(name), filepath.Base(name)); kind != "" {
			return []string{kind + ":" + name}, nil
		}
		return nil, ErrNoTasks
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var kinds []string
	add := func(kind string) {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	err = fs.WalkDir(root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil { // what cannot be read holds no tasks
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch {
		case e.IsDir() && p != "." && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case e.IsDir():
			kind := kindOfDir(root.FS(), p)
			if kind != "" {
				add(kind)
				return fs.SkipDir // what lies in a task is the task's
			}
			if p != "." && strings.Count(p, "/")+1 >= depth {
				return fs.SkipDir
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(kinds) == 0 {
		return nil, ErrNoTasks
	}
	slices.Sort(kinds)
	for i, k := range kinds {
		kinds[i] = k + ":" + name
	}
	return kinds, nil
}

// kindOfDir is the benchmark of a folder that is a task, or says by a file of its own which tasks
// it has.
func kindOfDir(fsys fs.FS, dir string) string {
	for _, x := range []struct{ file, kind string }{
		{"task.toml", "harbor"}, {"dataset.toml", "harbor"}, {"registry.json", "harbor"}, {"task.yaml", "terminalbench"}, {"tasks.yaml", "tasks"}, {"tasks.jsonl", "tasks"},
	} {
		if info, err := fs.Stat(fsys, path.Join(dir, x.file)); err == nil && info.Mode().IsRegular() {
			return x.kind
		}
	}
	return ""
}

// tasksKey is what a file of tasks has at its top, and a configuration has not.
var tasksKey = regexp.MustCompile(`(?m)^(tasks\s*:|- +(\{ *)?id\s*:)`)

// kindOfFile is the benchmark that a file belongs to.
func kindOfFile(dir, base string) string {
	switch {
	case base == "registry.json", base == "dataset.toml", base == "task.toml":
		return "harbor"
	case base == "task.yaml":
		return "terminalbench"
	case strings.HasSuffix(base, ".yaml"), strings.HasSuffix(base, ".yml"):
		if f, err := fsutil.Open(filepath.Join(dir, base)); err == nil {
			defer f.Close()
			b := make([]byte, 64<<10)
			n, _ := f.Read(b)
			if tasksKey.Match(bytes.ReplaceAll(b[:n], []byte("\r\n"), []byte("\n"))) {
				return "tasks"
			}
		}
	}
	return ""
}
