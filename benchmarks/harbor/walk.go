package harbor

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// depth is how far below a folder tasks are looked for.
const depth = 3

// walk finds the task folders below dir.
func (s *source) walk(dir string) ([]entry, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var out []entry
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
			fsys := &folder{root, filepath.FromSlash(p)}
			inside, err := fs.ReadDir(fsys, ".")
			if d.Type()&fs.ModeSymlink != 0 {
				if err == nil && looksLike(inside) {
					out = append(out, entry{dir: dir, sub: p, name: d.Name()})
				}
				continue // a link that leads out, to a file, or to a folder of tasks, which may hold itself
			}
			switch {
			case err != nil:
				out = append(out, entry{dir: dir, sub: p, name: d.Name(), err: err})
			case looksLike(inside):
				out = append(out, entry{dir: dir, sub: p, name: d.Name()})
			case level < depth:
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

// looksLike reports whether a folder is meant to be a task: by a task.toml, or by what tasks have
// beside one.
func looksLike(inside []fs.DirEntry) bool {
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
