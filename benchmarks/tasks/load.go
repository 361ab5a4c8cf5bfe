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

// maxYAML is the largest tasks.yaml: it is read whole, and what the parser makes of it is a hundred
// times as large. A JSONL file may be of any size.
const maxYAML = 8 << 20

// Names of the file that is looked for in a folder.
var fileNames = []string{"tasks.yaml", "tasks.yml", "tasks.jsonl", "tasks.jsonl.gz"}

// A place is where tasks come from: a file, and the folder that its "from" paths are in.
type place struct {
	name  string // of the benchmark, as far as the path tells
	shown string // the path, for people
	file  string // below fsys
	fsys  fs.FS
}

// locate finds the file of tasks. It does no more than look at names.
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

// yamlSource is a file in YAML, read once.
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

// Tasks yields the tasks in the file's order. One with errors is a *[datasets.BadTask] that lists
// them all.
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

// joinErrors makes one error of several. It leaves out the place of the first, which it returns,
// and the first key if that is path: the caller states both.
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

// text is the file's content.
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

// decoder goes by the types of fields alone, which keeps texts as they are written: an answer 007
// stays 007, a version 1.10 stays 1.10.
func decoder(errs *yamldoc.Errors, root string) *yamldoc.Decoder {
	return &yamldoc.Decoder{Report: errs.Add, Root: root, Scalars: yamldoc.Untyped}
}

// read reads the file; what it returns is wrong with the file as a whole.
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
	case yamldoc.List: // the tasks alone
		f.Tasks.Node = root
	case yamldoc.Map:
		for _, e := range root.Entries {
			if strings.HasPrefix(e.Key, "x-") { // holds what anchors refer to
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
	// What the parser refused of a task is that task's.
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
	if len(errs) == 0 { // what could not be read is not to be called missing
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

// about finds where the key stands that an error begins with.
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

// withDefaults lays a task over the defaults, key by key; of limits, fields and browser, member by
// member. A null takes a default away.
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

// newRows is a source of a JSONL file, a task a line.
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

// makeTask makes a task of what is written, its files from beside it digested.
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
	// Tags and fields select tasks, they do not change them.
	t.Tags, t.Fields, t.Cluster = nil, nil, ""
	out.Digest, err = record.TaskDigest("tasks", t.ID, map[string]any{"task": t, "from": sums})
	return out, err
}

// maxFiles and maxBytes bound what a task brings along, and what is collected of it.
const (
	maxFiles = 10_000
	maxBytes = 64 << 20
)

// digest is of a file's content, or of all below a folder.
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
