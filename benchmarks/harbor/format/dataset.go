package format

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// dataset lists the tasks of a dataset.toml: they lie below the folder given by the option root,
// else below the file's own, and must have the names and digests that the file says.
func (s *source) dataset(dir, file string) func(context.Context) ([]location, error) {
	return func(context.Context) ([]location, error) {
		b, err := readText(os.DirFS(dir), file) // the user's own file
		if err != nil {
			return nil, err
		}
		t, err := parseTOML(file, b)
		if err != nil {
			return nil, err
		}
		list := readDataset(t, func(name, digest string) error { return checkFile(dir, name, digest) })
		if len(t.f.errs) > 0 {
			return nil, errors.Join(t.f.errs...)
		}
		root := s.o.Root
		if root == "" {
			root = dir
		}
		return s.find(root, list)
	}
}

// readDataset reads the tasks that a dataset.toml names. check looks at the files that belong to
// it.
func readDataset(t *table, check func(name, digest string) error) (out []location) {
	defer t.end()
	d := t.table("dataset")
	if d == nil {
		t.bad("dataset", "want a table [dataset] with a name")
		return nil
	}
	if n := d.text("name"); !packageName.MatchString(n) || strings.Contains(n, "..") {
		d.bad("name", "%q; want organisation/name", n)
	}
	for _, k := range []string{"version", "description", "authors", "keywords"} {
		d.get(k)
	}
	d.end()
	tasks, _ := t.tables("tasks")
	seen := map[string]bool{}
	for _, x := range tasks {
		e := location{want: x.text("name"), digest: x.text("digest")}
		switch {
		case !packageName.MatchString(e.want) || strings.Contains(e.want, ".."):
			x.bad("name", "%q; want organisation/name", e.want)
		case seen[e.want]:
			x.bad("name", "%q stands here twice", e.want)
		case e.digest != "" && !digestForm.MatchString(e.digest):
			x.bad("digest", "%q; want sha256: and 64 hexadecimal digits", e.digest)
		}
		seen[e.want] = true
		x.end()
		out = append(out, e)
	}
	files, _ := t.tables("files")
	for _, x := range files {
		name, digest := x.text("path"), x.text("digest")
		if !fileName(name) {
			x.bad("path", "%q; want the name of a file beside dataset.toml", name)
		} else if err := check(name, digest); err != nil {
			x.bad("digest", "%v", err)
		}
		x.end()
	}
	return out
}

func checkFile(dir, name, digest string) error {
	if digest == "" {
		return nil
	}
	b, err := readText(os.DirFS(dir), name)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(b); digest != "sha256:"+hex.EncodeToString(sum[:]) {
		return fmt.Errorf("%s has another content than its digest says", name)
	}
	return nil
}

// find gives tasks that are known by name their folders below dir. A folder is known by its own
// name; where that leaves more than one, or none, the names in the task.toml files decide.
func (s *source) find(dir string, list []location) ([]location, error) {
	all, err := s.walk(dir)
	if err != nil {
		return nil, err
	}
	var named map[string]location
	for i, e := range list {
		at := slices.IndexFunc(all, func(f location) bool {
			return f.err == nil && f.name == short(e.want) && s.nameOf(f) == e.want
		})
		if at >= 0 {
			list[i].dir, list[i].sub, list[i].name = all[at].dir, all[at].sub, all[at].name
			continue
		}
		if named == nil {
			named = map[string]location{}
			for _, f := range slices.Backward(all) {
				named[s.nameOf(f)] = f
			}
		}
		f, ok := named[e.want]
		if !ok {
			list[i].dir, list[i].sub, list[i].name = dir, ".", short(e.want)
			list[i].err = fmt.Errorf("no folder below %s is this task; fetch it there, for evalrun reads no hub", dir)
			continue
		}
		list[i].dir, list[i].sub, list[i].name = f.dir, f.sub, f.name
	}
	return list, nil
}

// nameOf is what a folder's task calls itself; no more than its task.toml is read.
func (s *source) nameOf(e location) string {
	fsys, err := os.OpenRoot(filepath.Join(e.dir, filepath.FromSlash(e.sub)))
	if err != nil {
		return ""
	}
	defer fsys.Close()
	b, err := readText(fsys.FS(), "task.toml")
	if err != nil {
		return ""
	}
	t, err := parseTOML("task.toml", b)
	if err != nil {
		return ""
	}
	if name := t.table("task").text("name"); name != "" {
		return name
	}
	return e.name
}

// A registered dataset of a registry.json.
type registered struct {
	Name        string           `json:"name"`
	Version     string           `json:"version"`
	Description string           `json:"description"`
	Tasks       []registeredTask `json:"tasks"`
}

type registeredTask struct {
	Name   string `json:"name"`
	URL    string `json:"git_url"`
	Commit string `json:"git_commit_id"`
	Path   string `json:"path"`
}

// registry lists the tasks of one dataset of a registry.json.
func (s *source) registry(dir, file string) func(context.Context) ([]location, error) {
	return func(ctx context.Context) ([]location, error) {
		b, err := readText(os.DirFS(dir), file) // the user's own file
		if err != nil {
			return nil, err
		}
		var all []registered
		if err := json.Unmarshal(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")), &all); err != nil {
			return nil, fmt.Errorf("%s: %w; want a list of datasets", file, err)
		}
		d, err := chooseDataset(all, s.o.Dataset)
		if err != nil {
			return nil, err
		}
		var out []location
		seen := map[string]int{}
		for _, t := range d.Tasks {
			e := s.registered(ctx, dir, t)
			key := e.dir + "\x00" + e.sub
			if seen[key]++; seen[key] > 1 {
				e.err = fmt.Errorf("the path %s stands in the registry twice", t.Path)
			}
			out = append(out, e)
		}
		return out, nil
	}
}

// chooseDataset finds the dataset NAME or NAME@VERSION; without a name there must be only one.
func chooseDataset(all []registered, want string) (*registered, error) {
	var fits []*registered
	names := map[string]bool{}
	for i := range all {
		d := &all[i]
		full := d.Name
		if d.Version != "" {
			full += "@" + d.Version
		}
		names[full] = true
		if want == "" || want == d.Name || want == full {
			fits = append(fits, d)
		}
	}
	known := strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	switch {
	case len(all) == 0:
		return nil, errors.New("the registry is empty")
	case len(fits) == 0:
		return nil, fmt.Errorf("the registry has no dataset %q; it has %s", want, known)
	case len(fits) > 1:
		return nil, fmt.Errorf("which dataset? add dataset: NAME@VERSION to the options; the registry has %s", known)
	}
	return fits[0], nil
}

// registered finds the folder of a registry's task: below the option root, else beside the
// registry, else in the cache of fetched ones.
func (s *source) registered(ctx context.Context, dir string, t registeredTask) location {
	p := path.Clean(filepath.ToSlash(t.Path))
	e := location{dir: dir, sub: p, name: path.Base(p)}
	if t.Name != "" {
		e.name = t.Name // the registry's name counts where the task has none of its own
	}
	if t.Path == "" || !fs.ValidPath(p) || p == "." {
		e.err, e.sub = fmt.Errorf("the path %q leads out of its repository", t.Path), e.name
		return e
	}
	if root := s.o.Root; root != "" || t.URL == "" {
		if root == "" {
			root = dir
		}
		e.dir = root
		if info, err := os.Stat(filepath.Join(root, filepath.FromSlash(p))); err == nil && info.IsDir() {
			return e
		}
		if t.URL == "" {
			e.err = fmt.Errorf("no such folder below %s; set the option root to the folder that the registry's "+
				"paths are in", root)
			return e
		}
	}
	r := repository{t.URL, t.Commit}
	if e.err = r.check(); e.err != nil {
		return e
	}
	if e.dir, e.err = r.folder(ctx, s.o.Cache, s.o.Fetch); e.err != nil {
		e.dir = dir
	}
	return e
}
