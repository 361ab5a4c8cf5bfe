package launch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/harness/registry"
)

// depth is how many folder levels are searched for tasks.
const depth = 3

// Recognise returns the benchmarks found at a path: "harbor:PATH", "terminalbench:PATH",
// "tasks:PATH". A folder with tasks of two formats yields two benchmarks.
func Recognise(kinds *registry.Registry, name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if kind := kindOf(kinds, os.DirFS(filepath.Dir(name)), filepath.Base(name)); kind != "" {
			return []string{kind + ":" + name}, nil
		}
		return nil, ErrNoTasks
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var found []string
	err = fs.WalkDir(root.FS(), ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil { // an unreadable folder holds no tasks
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch {
		case e.IsDir() && p != "." && strings.HasPrefix(e.Name(), "."):
			return fs.SkipDir
		case e.IsDir():
			if kind := kindOf(kinds, root.FS(), p); kind != "" {
				if !slices.Contains(found, kind) {
					found = append(found, kind)
				}
				return fs.SkipDir // files inside a task belong to the task
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
	if len(found) == 0 {
		return nil, ErrNoTasks
	}
	slices.Sort(found)
	for i, k := range found {
		found[i] = k + ":" + name
	}
	return found, nil
}

// kindOf returns the kind of benchmark that recognises a file or a folder, or "".
func kindOf(kinds *registry.Registry, fsys fs.FS, name string) string {
	for _, k := range kinds.Benchmarks {
		if k.Recognise != nil && k.Recognise(fsys, name) {
			return k.Name
		}
	}
	return ""
}

// ErrNoTasks means that nothing at a path looks like a task.
var ErrNoTasks = errors.New("no tasks are there: looked for task.toml (Harbor), task.yaml (Terminal-Bench), " +
	"dataset.toml, registry.json and tasks.yaml, here and two folders down")
