package terminalbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// maxDepth is how deep below the source's folder tasks are looked for.
const maxDepth = 4

// A source is a task's folder, or a folder that holds tasks, in the order of their paths. A folder
// that looks like a task and has no task.yaml is a bad task, so that nobody misses it.
type source struct {
	dir  string // for people
	o    Options
	root fs.FS

	mu    sync.Mutex
	index map[string]string // task ID → folder
}

func newSource(dir string, o Options) (*source, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: no such folder", dir)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%s is no folder; give the folder of a task, or one that holds tasks", dir)
	}
	root, err := fsutil.FS(dir)
	if err != nil {
		return nil, err
	}
	return &source{dir: dir, o: o, root: root}, nil
}

func (s *source) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		index, n, seen := map[string]string{}, 0, 0
		for name, err := range s.walk(".", 0) {
			if ctx.Err() != nil {
				yield(datasets.Task{}, context.Cause(ctx))
				return
			}
			seen++
			id := s.id(name)
			if !s.o.wants(id) {
				continue
			}
			if s.o.NTasks > 0 && n == s.o.NTasks {
				break
			}
			var t datasets.Task
			if err == nil {
				t, err = s.task(name)
			} else {
				err = &datasets.BadTask{ID: id, Place: s.place(name), Err: err}
			}
			if err == nil {
				if first, twice := index[t.ID]; twice {
					yield(datasets.Task{},
						&datasets.Fatal{Place: s.place(name),
							Err: fmt.Errorf("the task name %q is used twice; the first is in %s", t.ID,
								s.place(first))})
					return
				}
				index[t.ID] = name
				n++
			}
			if !yield(t, err) {
				return
			}
		}
		if seen == 0 {
			yield(datasets.Task{}, &datasets.Fatal{Place: s.dir,
				Err: fmt.Errorf("no folder in it, up to %d deep, holds a %s; tasks with a task.toml are run as "+
					"harbor:PATH", maxDepth, taskFile)})
			return
		}
		s.mu.Lock()
		s.index = index
		s.mu.Unlock()
	}
}

func (s *source) Task(ctx context.Context, id string) (datasets.Task, error) {
	s.mu.Lock()
	index := s.index
	s.mu.Unlock()
	if index == nil {
		for _, err := range s.Tasks(ctx) {
			if err != nil && !errors.As(err, new(*datasets.BadTask)) {
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
	return s.task(name)
}

// walk yields the folders of tasks; the error says why one that looks like a task is none.
func (s *source) walk(dir string, depth int) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { s.step(dir, depth, yield) }
}

func (s *source) step(dir string, depth int, yield func(string, error) bool) bool {
	is := func(name string) bool {
		_, err := fs.Stat(s.root, path.Join(dir, name))
		return err == nil
	}
	switch {
	case is(taskFile):
		return yield(dir, nil)
	case is(testScript), is("task.yml"), is("tests") && is("Dockerfile"):
		return yield(dir, fmt.Errorf("it looks like a task, and has no %s", taskFile))
	case depth == maxDepth:
		return true
	}
	entries, err := fs.ReadDir(s.root, dir)
	if err != nil {
		return yield(dir, err)
	}
	names := []string{}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for _, n := range names {
		if !s.step(path.Join(dir, n), depth+1, yield) {
			return false
		}
	}
	return true
}

// id is the name of a task: its folder's.
func (s *source) id(name string) string {
	if name != "." {
		return path.Base(name)
	}
	abs, err := filepath.Abs(s.dir)
	if err != nil {
		abs = s.dir
	}
	return filepath.Base(abs)
}

func (s *source) place(name string) string { return path.Join(filepath.ToSlash(s.dir), name) }

func (s *source) task(name string) (datasets.Task, error) {
	id := s.id(name)
	bad := func(err error) (datasets.Task, error) {
		return datasets.Task{}, &datasets.BadTask{ID: id, Place: s.place(name), Err: err}
	}
	files, err := fs.Sub(s.root, name)
	if err != nil {
		return bad(err)
	}
	t, err := Load(files, id)
	if err != nil {
		return bad(err)
	}
	out := datasets.Task{ID: id, Tags: t.Tags,
		Fields: map[string]string{"difficulty": t.Difficulty, "category": t.Category}, Files: files}
	if out.Data, err = json.Marshal(t); err != nil {
		return bad(err)
	}
	out.Digest, err = record.TaskDigest("terminalbench", id, t.Digest)
	if err != nil {
		return bad(err)
	}
	return out, nil
}
