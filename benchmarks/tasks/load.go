package tasks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/jsonl"
	"github.com/evalrun/evalrun/datasets/table"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/fsutil"
	"github.com/evalrun/evalrun/internal/yamldoc"
)

// maxYAML is the maximum size of a tasks.yaml: the file is read whole, and its parsed form takes
// about a hundred times as much memory. A JSONL file may be of any size.
const maxYAML = 8 << 20

// fileNames are the task file names that are looked for in a directory.
var fileNames = []string{"tasks.yaml", "tasks.yml", "tasks.jsonl", "tasks.jsonl.gz"}

// A place is where tasks are read from: a file, and the directory that its "from" paths are
// relative to.
type place struct {
	name  string // of the benchmark, derived from the path
	shown string // the path, as shown to users
	file  string // path within fsys
	fsys  fs.FS
}

// locate finds the task file. It only looks at names and does not read the file.
func locate(p string) (dir, file, name string, err error) {
	info, err := os.Stat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", "", "", fmt.Errorf("%s: no such file or folder", p)
	case err != nil:
		return "", "", "", err
	case !info.IsDir():
		base := filepath.Base(p)
		name, _, _ = strings.Cut(base, ".")
		if name == "tasks" {
			if abs, err := filepath.Abs(filepath.Dir(p)); err == nil {
				name = filepath.Base(abs)
			}
		}
		return filepath.Dir(p), base, name, nil
	}
	for _, f := range fileNames {
		if info, err := os.Stat(filepath.Join(p, f)); err == nil && info.Mode().IsRegular() {
			abs, err := filepath.Abs(p)
			return p, f, filepath.Base(abs), err
		}
	}
	return "", "", "", fmt.Errorf("%s: the folder has no %s", p, strings.Join(fileNames, ", "))
}

// yamlSource is a task source backed by a YAML file, which is read once.
type yamlSource struct {
	place
	once  sync.Once
	fatal error
	name  string
	tasks []loaded
	index map[string]int
}

type loaded struct {
	task datasets.Task
	err  error
}

// Tasks yields the tasks in file order. For a task with errors it yields a *[datasets.BadTask] that
// lists all of them.
func (s *yamlSource) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		s.once.Do(s.load)
		if s.fatal != nil {
			yield(datasets.Task{}, s.fatal)
			return
		}
		for _, l := range s.tasks {
			if ctx.Err() != nil {
				yield(datasets.Task{}, context.Cause(ctx))
				return
			}
			if !yield(l.task, l.err) {
				return
			}
		}
	}
}

func (s *yamlSource) Task(_ context.Context, id string) (datasets.Task, error) {
	s.once.Do(s.load)
	if s.fatal != nil {
		return datasets.Task{}, s.fatal
	}
	i, ok := s.index[id]
	if !ok {
		return datasets.Task{}, fmt.Errorf("%s: task %q: %w", s.shown, id, datasets.ErrNoTask)
	}
	return s.tasks[i].task, nil
}

func (s *yamlSource) load() {
	err := s.read()
	if errs, ok := err.(yamldoc.Errors); ok {
		var at yamldoc.Pos
		at, err = joinErrors(errs, "")
		s.fatal = &datasets.Fatal{Place: at.String(), Err: err}
	} else if err != nil {
		s.fatal = &datasets.Fatal{Place: s.shown, Err: err}
	}
}

// joinErrors joins several errors into one. It returns the position of the first error separately,
// and omits that position from the text, and also the first key if it equals path, because the
// caller prints both.
func joinErrors(errs yamldoc.Errors, path string) (at yamldoc.Pos, err error) {
	errs.Sort()
	lines := make([]string, len(errs))
	for i, e := range errs {
		if lines[i] = e.Error(); i == 0 {
			first := *e
			if at = e.Pos; e.Key == path {
				first.Key = ""
			}
			lines[i] = first.Text()
		}
	}
	return at, errors.New(strings.Join(lines, "\n"))
}

// text returns the content of the file.
func (s *yamlSource) text() ([]byte, error) {
	f, err := fsutil.OpenIn(s.fsys, s.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxYAML+1))
	if err == nil && len(text) > maxYAML {
		err = fmt.Errorf("larger than %d MiB; write such a benchmark as JSONL", maxYAML>>20)
	}
	return text, err
}

// decoder returns a decoder that converts scalars by the type of the field only, which preserves
// text as written: an answer 007 stays 007, a version 1.10 stays 1.10.
func decoder(errs *yamldoc.Errors, root string) *yamldoc.Decoder {
	return &yamldoc.Decoder{Report: errs.Add, Root: root, Scalars: yamldoc.Untyped}
}

// read reads the file. It returns an error only if the file as a whole is invalid.
func (s *yamlSource) read() error {
	text, err := s.text()
	if err != nil {
		return err
	}
	root, err := yamldoc.Parse(s.shown, text, yamldoc.Bounds{Size: maxYAML})
	errs, _ := err.(yamldoc.Errors)
	if root == nil {
		return errs
	}
	var f struct {
		Name     string      `json:"name"`
		Defaults Task        `json:"defaults"`
		Tasks    yamldoc.Raw `json:"tasks"`
	}
	switch root.Kind {
	case yamldoc.Null:
		if len(errs) == 0 {
			return errors.New("the file is empty; see docs/own-benchmark.md for its form")
		}
		return errs
	case yamldoc.List: // a list of tasks without the surrounding map
		f.Tasks.Node = root
	case yamldoc.Map:
		for _, e := range root.Entries {
			if strings.HasPrefix(e.Key, "x-") { // holds anchors that tasks refer to
				root = root.Without(e.Key)
			}
		}
		decoder(&errs, "").Decode(root, &f)
	default:
		return errors.New("want a list of tasks, or keys and values with a list named tasks")
	}
	list := f.Tasks.Node
	if list != nil && list.Kind != yamldoc.List {
		errs.Add(list.Errorf("want a list"))
	}
	if list == nil || len(list.Items) == 0 {
		return cmp.Or(errs.Err(), errors.New("it holds no tasks"))
	}
	// Assign the parser's errors within a task to that task.
	own := make([]yamldoc.Errors, len(list.Items))
	errs = slices.DeleteFunc(errs, func(e *yamldoc.Error) bool {
		number, _, _ := strings.Cut(strings.TrimPrefix(e.Key, list.Path()+"["), "]")
		i, err := strconv.Atoi(number)
		if err == nil {
			e.Key = "tasks" + strings.TrimPrefix(e.Key, list.Path())
			own[i].Add(e)
		}
		return err == nil
	})
	if len(errs) > 0 {
		return errs
	}
	s.name, s.index = f.Name, map[string]int{}
	at := map[string]yamldoc.Pos{}
	for i, n := range list.Items {
		l := s.task(n, root.Get("defaults"), fmt.Sprintf("tasks[%d]", i), own[i])
		if id := l.task.ID; id != "" {
			if first, twice := at[id]; twice {
				return yamldoc.Errors{{Pos: n.Pos,
					Msg: fmt.Sprintf("task id %q is used twice; the first is at %s", id, first)}}
			}
			at[id] = n.Pos
			if l.err == nil {
				s.index[id] = len(s.tasks)
			}
		}
		if l.err != nil {
			l.task = datasets.Task{}
		}
		s.tasks = append(s.tasks, l)
	}
	return nil
}

func (s *yamlSource) task(n, defaults *yamldoc.Node, path string, errs yamldoc.Errors) loaded {
	var t Task
	merged := withDefaults(n, defaults)
	decoder(&errs, path).Decode(merged, &t)
	out := datasets.Task{ID: t.ID}
	if len(errs) == 0 { // otherwise fields that could not be parsed would be reported as missing
		err := t.validate()
		if err == nil {
			out, err = makeTask(s.name, t, s.fsys)
		}
		each := []error{err}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			each = many.Unwrap()
		}
		for _, err := range each {
			if err != nil {
				errs.Add(about(err, n, merged, path))
			}
		}
	}
	if len(errs) > 0 {
		at, err := joinErrors(errs, path)
		return loaded{out, &datasets.BadTask{ID: t.ID, Place: at.String(), Err: err}}
	}
	return loaded{task: out}
}

// about returns the error with the position of the key that its message starts with.
func about(err error, n, merged *yamldoc.Node, path string) *yamldoc.Error {
	key, msg, _ := strings.Cut(err.Error(), ": ")
	at := merged
	for part := range strings.SplitSeq(key, ".") {
		if at = at.Get(part); at == nil {
			return &yamldoc.Error{Pos: n.Pos, Key: path, Msg: err.Error()}
		}
	}
	return &yamldoc.Error{Pos: at.Pos, Key: yamldoc.Join(path, key), Msg: msg}
}

// withDefaults merges a task with the defaults, key by key; limits, fields and browser are merged
// member by member. A null removes a default.
func withDefaults(task, defaults *yamldoc.Node) *yamldoc.Node {
	if defaults == nil || task.Kind != yamldoc.Map {
		return task
	}
	out, index := *task, map[string]int{}
	out.Entries = slices.Clone(defaults.Entries)
	for i, e := range out.Entries {
		index[e.Key] = i
	}
	for _, e := range task.Entries {
		i, have := index[e.Key]
		if !have {
			out.Entries = append(out.Entries, e)
			continue
		}
		if below := out.Entries[i].Value; below.Kind == yamldoc.Map &&
			(e.Key == "limits" || e.Key == "fields" || e.Key == "browser") {
			e.Value = withDefaults(e.Value, below)
		}
		out.Entries[i] = e
	}
	return &out
}

// newRows returns a task source for a JSONL file, with one task per line.
func newRows(p place, onDisk string) datasets.Source {
	return table.New(jsonl.Open(onDisk), func(r table.Row) (datasets.Task, error) {
		var t Task
		n, err := yamldoc.ParseJSON(yamldoc.Pos{}, r.Data)
		if err == nil {
			var errs yamldoc.Errors
			decoder(&errs, "").Decode(n, &t)
			err = errs.Err()
		}
		if err == nil {
			err = t.validate()
		}
		if err != nil {
			return datasets.Task{ID: t.ID}, err
		}
		return makeTask(p.name, t, p.fsys)
	})
}

// makeTask converts t to a datasets.Task and computes the digests of the files it refers to.
func makeTask(benchmark string, t Task, fsys fs.FS) (datasets.Task, error) {
	out := datasets.Task{ID: t.ID, Cluster: t.Cluster, Tags: t.Tags, Fields: t.Fields, Files: fsys}
	sums := map[string]string{}
	type brought struct {
		key   string
		files map[string]Item
	}
	all := []brought{{"files", t.Files}}
	for i, s := range t.stages() {
		where := ""
		if len(t.Stages) > 0 {
			where = fmt.Sprintf("stage %d: ", i+1)
		}
		all = append(all, brought{where + "files", s.Files}, brought{where + "grade.files", s.Grade.Files})
	}
	if b := t.Browser; b != nil {
		if !slices.Contains(out.Tags, web.Tag) {
			out.Tags = append(slices.Clone(out.Tags), web.Tag)
		}
		all = append(all, brought{"browser.site", b.Site})
		if err := b.look(fsys); err != nil {
			return out, fmt.Errorf("browser.site: %w", err)
		}
	}
	for _, b := range all {
		for _, name := range sorted(b.files) {
			from := b.files[name].From
			if from == "" || sums[from] != "" {
				continue
			}
			sum, err := digest(fsys, path.Clean(from))
			if err != nil {
				return out, fmt.Errorf("%s: %q: from %q: %w", b.key, name, from, err)
			}
			sums[from] = sum
		}
	}
	var err error
	if out.Data, err = json.Marshal(t); err != nil {
		return out, err
	}
	// Tags and fields only select tasks; they are not part of the digest.
	t.Tags, t.Fields, t.Cluster = nil, nil, ""
	out.Digest, err = record.TaskDigest("tasks", t.ID, map[string]any{"task": t, "from": sums})
	return out, err
}

// maxFiles and maxBytes limit the files that come with a task and the files that are collected from
// it.
const (
	maxFiles = 10_000
	maxBytes = 64 << 20
)

// digest returns the digest of a file, or of everything below a directory.
func digest(fsys fs.FS, name string) (string, error) {
	h := sha256.New()
	files, bytes := 0, int64(0)
	err := fs.WalkDir(fsys, name, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if files++; files > maxFiles {
			return fmt.Errorf("more than %d files", maxFiles)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%q %v\n", strings.TrimPrefix(p, name), info.Mode())
		switch {
		case e.IsDir():
			return nil
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := fs.ReadLink(fsys, p)
			fmt.Fprintf(h, "%q\n", to)
			return err
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s: not a regular file", p)
		}
		if bytes += info.Size(); bytes > maxBytes {
			return fmt.Errorf("more than %d MiB", maxBytes>>20)
		}
		f, err := fsys.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		n, err := io.Copy(h, io.LimitReader(f, maxBytes))
		fmt.Fprintf(h, "\n%d\n", n)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("no such file beside the tasks")
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), err
}
