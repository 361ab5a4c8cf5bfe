// Package folders makes a source of a folder that holds one folder a task. Content is read below
// the folder only: links that lead out of it are errors, not ways out.
package folders

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/datasets"
)

// A Maker makes a task of its folder. name is the folder's path below the source's, with slashes.
type Maker func(name string, dir fs.FS) (datasets.Task, error)

// New returns a source of all folders below dir that hold a file called marker, in the order of
// their names; folders inside a task are its own. Task IDs are the names that the maker gives,
// usually the folder's.
func New(dir, marker string, mk Maker) datasets.Source {
	return &source{dir: dir, marker: marker, make: mk}
}

// MaxDepth is how deep below the source's folder tasks are looked for.
const MaxDepth = 4

type source struct {
	dir, marker string
	make        Maker

	mu    sync.Mutex
	root  *os.Root
	index map[string]string // task ID → folder
}

// FS is dir's content as an fs.FS that links do not lead out of.
func FS(dir string) (fs.FS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return root.FS(), nil
}

func (s *source) open() (fs.FS, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == nil {
		root, err := os.OpenRoot(s.dir)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = errors.New("no such folder")
			}
			return nil, &datasets.Fatal{Place: s.dir, Err: err}
		}
		s.root = root
	}
	return s.root.FS(), nil
}

func (s *source) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		fsys, err := s.open()
		if err != nil {
			yield(datasets.Task{}, err)
			return
		}
		index := map[string]string{}
		for name, err := range s.walk(fsys, ".", 0) {
			if ctx.Err() != nil {
				yield(datasets.Task{}, context.Cause(ctx))
				return
			}
			var t datasets.Task
			if err == nil {
				t, err = s.task(fsys, name)
			}
			if err == nil {
				if first, twice := index[t.ID]; twice {
					yield(datasets.Task{}, &datasets.Fatal{Place: path.Join(s.dir, name),
						Err: fmt.Errorf("task ID %q is used twice; the first is in %s", t.ID, first)})
					return
				}
				index[t.ID] = name
			}
			if !yield(t, err) {
				return
			}
		}
		if len(index) == 0 {
			yield(datasets.Task{}, &datasets.Fatal{Place: s.dir, Err: fmt.Errorf("no folder below it holds a %s", s.marker)})
			return
		}
		s.mu.Lock()
		s.index = index
		s.mu.Unlock()
	}
}

// walk yields the folders with a marker.
func (s *source) walk(fsys fs.FS, dir string, depth int) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { s.step(fsys, dir, depth, yield) }
}

func (s *source) step(fsys fs.FS, dir string, depth int, yield func(string, error) bool) bool {
	if info, err := fs.Stat(fsys, path.Join(dir, s.marker)); err == nil && info.Mode().IsRegular() && depth > 0 {
		return yield(dir, nil)
	}
	if depth == MaxDepth {
		return true
	}
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return yield(dir, &datasets.BadTask{Place: path.Join(s.dir, dir), Err: err})
	}
	names := []string{}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for _, n := range names {
		if !s.step(fsys, path.Join(dir, n), depth+1, yield) {
			return false
		}
	}
	return true
}

func (s *source) task(fsys fs.FS, name string) (datasets.Task, error) {
	sub, err := fs.Sub(fsys, name)
	if err == nil {
		var t datasets.Task
		if t, err = s.make(name, sub); err == nil {
			return t, nil
		}
	}
	return datasets.Task{}, &datasets.BadTask{ID: name, Place: path.Join(s.dir, name), Err: err}
}

func (s *source) Task(ctx context.Context, id string) (datasets.Task, error) {
	s.mu.Lock()
	index := s.index
	s.mu.Unlock()
	if index == nil {
		for _, err := range s.Tasks(ctx) {
			var bad *datasets.BadTask
			if err != nil && !errors.As(err, &bad) {
				return datasets.Task{}, err
			}
		}
		s.mu.Lock()
		index = s.index
		s.mu.Unlock()
	}
	name, ok := index[id]
	if !ok {
		return datasets.Task{}, fmt.Errorf("%s: task %q: %w", s.dir, id, datasets.ErrNoTask)
	}
	fsys, err := s.open()
	if err != nil {
		return datasets.Task{}, err
	}
	return s.task(fsys, name)
}
