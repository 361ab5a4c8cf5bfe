package format

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxFolderDepth is how far below a folder tasks are looked for.
const maxFolderDepth = 3

// walk finds the task folders below dir.
func (s *source) walk(dir string) ([]location, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var out []location
	var look func(sub string, level int) error
	look = func(sub string, level int) error {
		entries, err := fs.ReadDir(root.FS(), sub)
		if err != nil {
			return err
		}
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		for _, d := range entries {
			if strings.HasPrefix(d.Name(), ".") || !d.IsDir() && d.Type()&fs.ModeSymlink == 0 {
				continue
			}
			p := path.Join(sub, d.Name())
			fsys := &subFS{root, filepath.FromSlash(p)}
			inside, err := fs.ReadDir(fsys, ".")
			if d.Type()&fs.ModeSymlink != 0 {
				if err == nil && looksLikeTask(inside) {
					out = append(out, location{dir: dir, sub: p, name: d.Name()})
				}
				continue // a link that leads out, to a file, or to a folder of tasks, which may hold itself
			}
			switch {
			case err != nil:
				out = append(out, location{dir: dir, sub: p, name: d.Name(), err: err})
			case looksLikeTask(inside):
				out = append(out, location{dir: dir, sub: p, name: d.Name()})
			case level < maxFolderDepth:
				if err := look(p, level+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	err = look(".", 1)
	return out, err
}

// looksLikeTask reports whether a folder is meant to be a task: by a task.toml, or by what tasks
// have beside one.
func looksLikeTask(inside []fs.DirEntry) bool {
	has := func(names ...string) bool {
		for _, n := range names {
			if !slices.ContainsFunc(inside, func(e fs.DirEntry) bool { return e.Name() == n }) {
				return false
			}
		}
		return true
	}
	return has("task.toml") || has("task.yaml") || has("instruction.md") || has("environment", "tests")
}
