package format

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/datasets"
)

// SourceOptions say which tasks [Open] yields, and where it looks for them.
type SourceOptions struct {
	// Shell patterns of task names: those to include, where none means all, and those to exclude.
	Include, Exclude []string
	Limit            int // of tasks; 0: none

	ExtraInstructions []string // files whose text is appended to every instruction

	Dataset string // of a registry.json: NAME or NAME@VERSION
	Root    string // folder that the paths of a dataset.toml or registry.json are in; "": its own
	Fetch   bool   // fetch repositories that a registry.json names
	Cache   string // folder of fetched repositories; "": evalrun/harbor in the user's cache folder
}

// Open returns the tasks at a path, and a name for them. The path is a task's folder, a folder of
// such, a dataset.toml or a registry.json. Nothing but extra instructions is read yet.
func Open(p string, o SourceOptions) (name string, _ datasets.Source, err error) {
	extra, err := readExtraInstructions(o.ExtraInstructions)
	if err != nil {
		return "", nil, err
	}
	filter, err := newNameFilter(o.Include, o.Exclude)
	if err != nil {
		return "", nil, err
	}
	info, err := os.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("%s: no such file or folder", p)
	}
	if err != nil {
		return "", nil, err
	}
	dir, file := p, ""
	if !info.IsDir() {
		dir, file = filepath.Split(p)
		dir = filepath.Clean(dir)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	has := func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	}
	s := &source{path: p, file: file, o: o, filter: filter, extra: extra}
	name = filepath.Base(abs)
	switch {
	case file == "task.toml" || file == "" && has("task.toml"):
		s.list = func(context.Context) ([]location, error) { return []location{{dir: dir, sub: ".", name: name}}, nil }
	case file == "" && has("dataset.toml"):
		s.file = "dataset.toml"
		s.list = s.dataset(dir, "dataset.toml")
	case file == "" && has("registry.json"):
		s.list = s.registry(dir, "registry.json")
	case file == "":
		s.dir = dir
		s.list = func(context.Context) ([]location, error) { return s.walk(dir) }
	case strings.HasSuffix(file, ".toml"):
		s.list = s.dataset(dir, file)
	case strings.HasSuffix(file, ".json"):
		s.list = s.registry(dir, file)
	default:
		return "", nil, fmt.Errorf("%s: want a folder of tasks, a dataset.toml or a registry.json", p)
	}
	return name, s, nil
}

// An location is where a task is, before it is read.
type location struct {
	dir    string // folder that is opened as a root
	sub    string // below it, with slashes
	name   string // the folder's; what the task is called when it does not say
	want   string // the name that a dataset gives it; "": any
	digest string // that it must have; "": any
	err    error  // why it cannot be read
}

type source struct {
	path   string // as the user wrote it
	file   string // dataset.toml or registry.json
	dir    string // folder to search for tasks; "": file lists them
	o      SourceOptions
	filter nameFilter
	extra  []string // texts that are appended to every instruction
	list   func(ctx context.Context) ([]location, error)

	mu      sync.Mutex
	entries []location
	listed  bool
	roots   map[string]*os.Root
	index   map[string]location // by task ID, as far as tasks were read
}

func (s *source) all(ctx context.Context) ([]location, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.listed {
		list, err := s.list(ctx)
		if err != nil {
			return nil, err
		}
		s.entries, s.listed = list, true
	}
	return s.entries, nil
}

// files is the content of an entry's folder.
func (s *source) files(e location) (fs.FS, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	root := s.roots[e.dir]
	if root == nil {
		var err error
		if root, err = os.OpenRoot(e.dir); err != nil {
			return nil, err
		}
		if s.roots == nil {
			s.roots = map[string]*os.Root{}
		}
		s.roots[e.dir] = root
	}
	return &subFS{root, filepath.FromSlash(e.sub)}, nil
}

func (s *source) place(e location) string { return filepath.Join(e.dir, filepath.FromSlash(e.sub)) }

// task reads the task of an entry.
func (s *source) task(e location) (t datasets.Task, err error) {
	var d *Task
	id := e.want
	defer func() {
		if err != nil {
			if id == "" {
				id = path.Clean(e.sub)
				if id == "." {
					id = e.name
				}
			}
			err = &datasets.BadTask{ID: id, Place: s.place(e), Err: err}
		}
	}()
	if e.err != nil {
		return t, e.err
	}
	fsys, err := s.files(e)
	if err != nil {
		return t, err
	}
	if why := whyNotTask(fsys); why != "" {
		return t, errors.New(why)
	}
	if d, err = Load(fsys, e.name); err != nil {
		return t, err
	}
	if e.digest != "" && d.Digest != e.digest {
		return t, fmt.Errorf("its content has the digest %s, and %s wants %s; get the right version", d.Digest, s.file,
			e.digest)
	}
	for i := range d.Steps {
		d.Steps[i].Instruction = strings.Join(append([]string{d.Steps[i].Instruction}, s.extra...), "\n\n")
	}
	t = datasets.Task{ID: d.Name, Digest: d.Digest, Files: fsys, Warnings: d.Warnings}
	t.Tags, t.Fields = d.labels()
	t.Data, err = json.Marshal(d)
	return t, err
}

// whyNotTask says why a folder without a task.toml is no task; "": it has one.
func whyNotTask(fsys fs.FS) string {
	has := func(name string) bool { _, err := fs.Stat(fsys, name); return err == nil }
	switch {
	case has("task.toml"):
		return ""
	case has("task.yaml"):
		return "a Terminal-Bench v1 task (task.yaml); run it as terminalbench:PATH"
	}
	return "it looks like a task, and has no task.toml"
}

// labels are what selections ask for: tags and keywords, and the plain values of the metadata.
func (t *Task) labels() (tags []string, fields map[string]string) {
	fields = map[string]string{}
	var m map[string]any
	_ = json.Unmarshal(t.Metadata, &m) // metadata of another form has no fields
	for k, v := range m {
		switch v := v.(type) {
		case string, float64, bool:
			fields[k] = fmt.Sprint(v)
		case []any:
			for _, x := range v {
				if s, ok := x.(string); ok && k == "tags" {
					tags = append(tags, s)
				}
			}
		}
	}
	if t.Package != nil {
		tags = append(tags, t.Package.Keywords...)
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	if t.Multi {
		fields["steps"] = fmt.Sprint(len(t.Steps))
	}
	return tags, fields
}

func short(name string) string { return name[strings.LastIndex(name, "/")+1:] }

// Tasks yields the tasks in the order of their folders, or of the dataset. A folder that looks like
// a task and is none is a *[datasets.BadTask]; so is the second of two tasks of one name or of the
// same content.
func (s *source) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		entries, err := s.all(ctx)
		if err != nil {
			yield(datasets.Task{}, &datasets.Fatal{Place: s.path, Err: err})
			return
		}
		index, digests := map[string]location{}, map[string]string{}
		n := 0
		for _, e := range entries {
			if ctx.Err() != nil {
				yield(datasets.Task{}, context.Cause(ctx))
				return
			}
			t, err := s.task(e)
			// As in Harbor a pattern fits a whole name; the short one and the folder's are names
			// too.
			if !s.filter.matches(t.ID, short(t.ID), e.want, short(e.want), e.name) {
				continue
			}
			if err == nil {
				if was, twice := index[t.ID]; twice {
					err = fmt.Errorf("it has the name of %s; a task needs one of its own", s.place(was))
				} else if was := digests[t.Digest]; was != "" {
					err = fmt.Errorf("it is the same as %s, file by file", was)
				}
				if err != nil {
					t, err = datasets.Task{}, &datasets.BadTask{ID: e.sub, Place: s.place(e), Err: err}
				} else {
					index[t.ID], digests[t.Digest] = e, t.ID
				}
			}
			if n++; !yield(t, err) {
				return
			}
			if n == s.o.Limit {
				break
			}
		}
		if n == 0 {
			yield(datasets.Task{}, &datasets.Fatal{Place: s.path,
				Err: errors.New("there is no task in it, or none that task_names and exclude_task_names leave")})
			return
		}
		s.mu.Lock()
		if s.index == nil {
			s.index = index
		} else {
			maps.Copy(s.index, index)
		}
		s.mu.Unlock()
	}
}

// Task reads one task: its folder is guessed from the name, and all are looked at only when that is
// wrong.
func (s *source) Task(ctx context.Context, id string) (datasets.Task, error) {
	s.mu.Lock()
	e, known := s.index[id]
	s.mu.Unlock()
	if known {
		return s.task(e)
	}
	if name := short(id); s.dir != "" && fileName(name) && !strings.HasPrefix(name, ".") {
		e := location{dir: s.dir, sub: name, name: name}
		if t, err := s.task(e); err == nil && t.ID == id {
			s.remember(id, e)
			return t, nil
		}
	}
	entries, err := s.all(ctx)
	if err != nil {
		return datasets.Task{}, &datasets.Fatal{Place: s.path, Err: err}
	}
	guessed := 0
	for _, e := range entries {
		if e.want != id && e.name != id && e.name != short(id) {
			continue
		}
		if guessed++; guessed > 3 {
			break
		}
		if t, err := s.task(e); err == nil && t.ID == id {
			s.remember(id, e)
			return t, nil
		}
	}
	for t, err := range s.Tasks(ctx) {
		var bad *datasets.BadTask
		switch {
		case errors.As(err, &bad):
			if bad.ID == id {
				return datasets.Task{}, err
			}
		case err != nil:
			return datasets.Task{}, err
		case t.ID == id:
			return t, nil
		}
	}
	return datasets.Task{}, fmt.Errorf("%s: task %q: %w", s.path, id, datasets.ErrNoTask)
}

// remember notes where a task is. Another folder of the same name would make it a bad task, but a
// listing has told that before.
func (s *source) remember(id string, e location) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index == nil {
		s.index = map[string]location{}
	}
	s.index[id] = e
}

// readExtraInstructions reads and cleans files as if they were instructions.
func readExtraInstructions(names []string) (out []string, err error) {
	for _, n := range names {
		b, err := readText(os.DirFS(filepath.Dir(n)), filepath.Base(n)) // the user's own file
		if err != nil {
			return nil, fmt.Errorf("extra instructions: %w", err)
		}
		text, err := cleanInstruction(b)
		if err != nil {
			return nil, fmt.Errorf("extra instructions: %s: %w", n, err)
		}
		out = append(out, text)
	}
	return out, nil
}
