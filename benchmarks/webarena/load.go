package webarena

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// Open returns the tasks of a published file, a JSON array of configurations. The task IDs are the
// numbers that published results use. task.Data is the configuration with its placeholders, so that
// it does not depend on where the sites are. A configuration that cannot be graded becomes a bad
// task.
//
// For a directory, Open concatenates its files test_*.raw.json in name order. VisualWebArena
// publishes one file per site, each counting from 0, and this order gives the published numbers.
func Open(d Dialect, path string) (datasets.Source, error) {
	raw, err := readAll(path)
	if err != nil {
		return nil, &datasets.Fatal{Place: path, Err: err}
	}
	return Read(d, path, raw)
}

func readAll(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return read(path, fi)
	}
	names, err := filepath.Glob(filepath.Join(path, "test_*.raw.json"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errors.New("the folder has no test_*.raw.json")
	}
	slices.Sort(names)
	var all []map[string]json.RawMessage
	for _, name := range names {
		fi, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		raw, err := read(name, fi)
		if err != nil {
			return nil, err
		}
		var list []map[string]json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("%s: an array of configurations was expected: %w", filepath.Base(name), err)
		}
		first := len(all)
		for _, c := range list {
			var n int
			if c != nil && json.Unmarshal(c["task_id"], &n) == nil {
				c["task_id"] = json.RawMessage(strconv.Itoa(first + n))
			}
			all = append(all, c)
		}
	}
	return json.Marshal(all)
}

// maxFile is the maximum size of a task file. The published ones are smaller than two million
// bytes.
const maxFile = 256 << 20

// read is os.ReadFile restricted to regular files: reading a pipe would block, and reading a device
// may never end.
func read(name string, fi os.FileInfo) ([]byte, error) {
	switch {
	case !fi.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", filepath.Base(name))
	case fi.Size() > maxFile:
		return nil, fmt.Errorf("%s has %d MiB, which is more than a file of tasks may have (%d)", filepath.Base(name),
			fi.Size()>>20, maxFile>>20)
	}
	return fsutil.ReadFile(name, maxFile)
}

// Read is like [Open] for data in memory. place names it in errors.
func Read(d Dialect, place string, raw []byte) (datasets.Source, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, &datasets.Fatal{Place: place, Err: fmt.Errorf("an array of configurations was expected: %w", err)}
	}
	s := &source{bad: map[int]error{}}
	configs := make([]*Config, len(list))
	sites := make([][]string, len(list))
	for i, raw := range list {
		c, err := Parse(d, raw)
		t := datasets.Task{Data: raw}
		if err != nil {
			var id struct {
				TaskID json.RawMessage `json:"task_id"`
			}
			_ = json.Unmarshal(raw, &id) // a value that is not an object has no ID
			t.ID = string(id.TaskID)
			s.bad[i] = &datasets.BadTask{ID: t.ID, Place: fmt.Sprintf("%s[%d]", place, i), Err: err}
			s.tasks = append(s.tasks, t)
			continue
		}
		configs[i], sites[i] = c, c.Sites
		s.tasks = append(s.tasks, c.task(d, raw))
	}
	for i, after := range order(d, configs, sites) {
		for _, j := range after {
			s.tasks[i].After = append(s.tasks[i].After, s.tasks[j].ID)
		}
	}
	var good []datasets.Task
	for i, t := range s.tasks {
		if s.bad[i] == nil {
			good = append(good, t)
		}
	}
	s.Source = web.Table(good)
	return s, nil
}

type source struct {
	datasets.Source // of the valid tasks
	tasks           []datasets.Task
	bad             map[int]error
}

func (s *source) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		for i, t := range s.tasks {
			if ctx.Err() != nil {
				return
			}
			if s.bad[i] != nil {
				t = datasets.Task{}
			}
			if !yield(t, s.bad[i]) {
				return
			}
		}
	}
}

// few is a subset of a source's tasks, and its errors.
type few struct {
	datasets.Source
	ids []int
}

func (f few) Tasks(ctx context.Context) iter.Seq2[datasets.Task, error] {
	return func(yield func(datasets.Task, error) bool) {
		for t, err := range f.Source.Tasks(ctx) {
			n, bad := strconv.Atoi(t.ID)
			if err == nil && (bad != nil || !slices.Contains(f.ids, n)) {
				continue
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

func (c *Config) id() int {
	if c.OldID != nil {
		return *c.OldID
	}
	return c.TaskID
}

func (c *Config) task(d Dialect, raw json.RawMessage) datasets.Task {
	t := datasets.Task{ID: strconv.Itoa(c.id()), Cluster: "template-" + strconv.Itoa(c.Template), Data: raw,
		Tags: append([]string{web.Tag}, c.Sites...),
		Fields: map[string]string{"sites": strings.Join(c.Sites, " "), "eval_types": strings.Join(c.Eval.Types, " "),
			"requires_reset": strconv.FormatBool(c.Reset)}}
	// raw was decoded before, so this cannot fail
	t.Digest, _ = record.TaskDigest(string(d), t.ID, raw)
	if s := d.split(c.id()); s != "" {
		t.Fields["split"] = s
		t.Tags = append(t.Tags, s)
	}
	for k, v := range map[string]string{"reasoning_difficulty": c.Reasoning, "visual_difficulty": c.Visual,
		"overall_difficulty": c.Difficulty} {
		if v != "" {
			t.Fields[k] = v
		}
	}
	return t
}

// order returns for each task the tasks that must be played before it, as the published lists do.
// In WebArena each task follows the previous one on each of its sites, except wikipedia, which
// cannot be changed. In Lite the order is the same among the WebArena tasks that it includes. In
// VisualWebArena the tasks that reset sites form such a chain, and all other tasks follow its last
// task.
func order(d Dialect, configs []*Config, sites [][]string) [][]int {
	writable := make([][]string, len(sites))
	last := map[string]int{} // the last task that reset each site
	for i, list := range sites {
		for _, s := range list {
			if !changes(s) || d == Visual && !configs[i].Reset {
				continue
			}
			writable[i] = append(writable[i], s)
			last[s] = i
		}
	}
	after := web.Chain(writable)
	switch d {
	case Visual:
		for i, c := range configs {
			if c == nil || c.Reset {
				continue
			}
			for _, s := range c.Sites {
				if j, ok := last[s]; ok && !slices.Contains(after[i], j) {
					after[i] = append(after[i], j)
				}
			}
		}
	case Lite:
		at := map[int]int{}
		for i, c := range configs {
			if c != nil {
				at[c.id()] = i
			}
		}
		for i, c := range configs {
			after[i] = nil
			if c == nil {
				continue
			}
			for _, id := range liteAfter[c.id()] {
				if j, ok := at[id]; ok {
					after[i] = append(after[i], j)
				}
			}
		}
	}
	return after
}
