package tasks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/jsonl"
	"github.com/evalrun/evalrun/datasets/table"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/fsutil"
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
	if errs := s.read(); len(errs) > 0 {
		s.fatal = fatal(s.shown, errs...)
	}
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
	if err == nil && !utf8.Valid(text) {
		err = errors.New("not UTF-8; convert the file, with iconv say")
	}
	return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), err
}

// read reads the file; what it returns is wrong with the file as a whole.
func (s *yamlSource) read() []error {
	one := func(format string, args ...any) []error { return []error{fmt.Errorf(format, args...)} }
	text, err := s.text()
	if err != nil {
		return []error{err}
	}
	d, root, err := parse(s.shown, text)
	if err != nil {
		return []error{err}
	}
	if root == nil {
		return one("the file is empty; see docs/own-benchmark.md for its form")
	}
	var list *ast.SequenceNode
	var defaults map[string]any
	if seq, ok := root.(*ast.SequenceNode); ok { // the tasks alone
		list = seq
	} else {
		members, ok := d.members(root)
		if !ok {
			return one("want a list of tasks, or keys and values with a list named tasks")
		}
		for _, m := range members {
			switch k := keyOf(m); k {
			case "name":
				s.name, _ = d.value(m.Value, reflect.TypeFor[string]()).(string)
			case "defaults":
				defaults, _ = d.value(m.Value, reflect.TypeFor[Task]()).(map[string]any)
			case "tasks":
				if list, ok = d.resolve(m.Value).(*ast.SequenceNode); !ok {
					d.bad(m.Value, "tasks: want a list")
				}
			default:
				// A key that starts with x- holds what anchors refer to.
				if strings.HasPrefix(k, "x-") {
					ast.Walk(anchors{d}, m.Value)
					continue
				}
				d.bad(m.Key, "unknown key %q%s", k, nearest(k, []string{"name", "defaults", "tasks"}))
			}
		}
	}
	if len(d.errs) > 0 {
		return d.errs
	}
	if list == nil || len(list.Values) == 0 {
		return one("it holds no tasks")
	}
	s.index = map[string]int{}
	at := map[string]string{}
	for _, n := range list.Values {
		l := s.task(d, n, defaults)
		if id := l.task.ID; id != "" {
			if first, twice := at[id]; twice {
				return []error{&placed{d.place(n), fmt.Sprintf("task id %q is used twice; the first is at %s", id, first)}}
			}
			at[id] = d.place(n)
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

// anchors notes the anchors of a part that is not read otherwise.
type anchors struct{ d *decoder }

func (a anchors) Visit(n ast.Node) ast.Visitor {
	if x, ok := n.(*ast.AnchorNode); ok {
		a.d.anchors[x.Name.GetToken().Value] = x.Value
	}
	return a
}

func (s *yamlSource) task(d *decoder, n ast.Node, defaults map[string]any) loaded {
	d.errs = nil
	m, _ := d.value(n, reflect.TypeFor[Task]()).(map[string]any)
	errs := d.errs
	d.errs = nil
	var t Task
	raw, err := json.Marshal(withDefaults(m, defaults))
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if len(errs) == 0 { // what the decoder could not read is not to be called missing
		if err == nil {
			err = t.validate()
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	out := datasets.Task{ID: t.ID}
	if len(errs) == 0 {
		if out, err = makeTask(s.name, t, s.fsys); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return loaded{out, &datasets.BadTask{ID: t.ID, Place: d.place(n), Err: errors.Join(errs...)}}
	}
	return loaded{task: out}
}

// withDefaults lays a task over the defaults, key by key; of limits, fields and browser, member by
// member.
func withDefaults(task, defaults map[string]any) map[string]any {
	out := maps.Clone(defaults)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range task {
		below, ok1 := out[k].(map[string]any)
		above, ok2 := v.(map[string]any)
		if ok1 && ok2 && (k == "limits" || k == "fields" || k == "browser") {
			v = withDefaults(above, below)
		}
		out[k] = v
	}
	return out
}

// newRows is a source of a JSONL file, a task a line.
func newRows(p place, onDisk string) datasets.Source {
	return table.New(jsonl.Open(onDisk), func(r table.Row) (datasets.Task, error) {
		var t Task
		err := strict(r.Data, &t)
		if err == nil {
			err = t.validate()
		}
		if err != nil {
			return datasets.Task{ID: t.ID}, errors.New(strings.TrimPrefix(err.Error(), "json: "))
		}
		return makeTask(p.name, t, p.fsys)
	})
}

// makeTask makes a task of what is written, its files from beside it digested.
func makeTask(benchmark string, t Task, fsys fs.FS) (datasets.Task, error) {
	out := datasets.Task{ID: t.ID, Cluster: t.Cluster, Tags: t.Tags, Fields: t.Fields, Files: fsys}
	sums := map[string]string{}
	all := []map[string]Item{t.Files}
	for _, s := range t.stages() {
		all = append(all, s.Files, s.Grade.Files)
	}
	if b := t.Browser; b != nil {
		if !slices.Contains(out.Tags, web.Tag) {
			out.Tags = append(slices.Clone(out.Tags), web.Tag)
		}
		all = append(all, b.Site)
		if err := b.look(fsys); err != nil {
			return out, fmt.Errorf("browser.site: %w", err)
		}
	}
	for _, files := range all {
		for _, name := range sorted(files) {
			from := files[name].From
			if from == "" || sums[from] != "" {
				continue
			}
			sum, err := digest(fsys, path.Clean(from))
			if err != nil {
				return out, fmt.Errorf("files: %q: from %q: %w", name, from, err)
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
