// Package search finds files by name and lines by regular expression. It is the part that runs inside
// the sandbox, as a process of the agent's user (see package fileop).
//
// What is searched follows the rules of ripgrep: hidden files and those that .gitignore, .ignore or
// .rgignore name are left out. Or it follows those of DeerFlow: names such as node_modules are left
// out, and large files. In both, links are not followed, and only regular files are opened.
//
// The results are in the order of their paths, so a limited number of them is always the same. Regular
// expressions are those of package regexp (RE2), which take linear time. Classes such as \w are ASCII.
package search

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Result is what a search has found.
type Result struct {
	Hits []sandbox.Hit
	More bool // there are more hits than the search may have
	// Unreadable counts the files and folders that could not be read.
	Unreadable int
}

// maxText limits the text of all hits, in bytes.
const maxText = 4 << 20

// Glob finds the files below root whose paths match a pattern. When ctx ends, it returns what it has
// found, and the cause.
func Glob(ctx context.Context, root string, s sandbox.Search) (Result, error) {
	info, err := os.Stat(root)
	if err != nil {
		return Result{}, missing(root, err)
	}
	if !info.IsDir() {
		return Result{}, fmt.Errorf("%s is no folder", root)
	}
	g, err := newGlob(root, s.Pattern, s.DeerFlow)
	if err != nil {
		return Result{}, err
	}
	var res Result
	size := 0
	w := newWalk(ctx, root, s.DeerFlow)
	w.files, w.dirs, w.levels = g, s.Dirs, g.levels()
	w.each(func(f found) bool {
		if len(res.Hits) == limit(s) || size > maxText {
			res.More = true
			return false
		}
		name := f.path
		if f.dir {
			name += "/"
		}
		size += len(name)
		res.Hits = append(res.Hits, sandbox.Hit{Path: name})
		return true
	})
	res.Unreadable = w.unreadable
	return res, context.Cause(ctx)
}

// Grep finds the lines that match a pattern, in the files below root, or in root if it is a file.
// When ctx ends, it returns what it has found, and the cause.
func Grep(ctx context.Context, root string, s sandbox.Search) (Result, error) {
	info, err := os.Stat(root)
	if err != nil {
		return Result{}, missing(root, err)
	}
	m, err := newMatcher(s.Pattern, s.Literal, s.IgnoreCase)
	if err != nil {
		return Result{}, err
	}
	w := newWalk(ctx, root, s.DeerFlow)
	if s.Files != "" {
		if w.files, err = newGlob(root, s.Files, s.DeerFlow); err != nil {
			return Result{}, err
		}
	}
	lines := scanner{m: m, width: s.Width, most: limit(s) + 1, deerflow: s.DeerFlow}
	if !info.IsDir() {
		job := &job{path: root, named: true}
		lines.scan(ctx, job)
		if job.err != nil {
			return Result{}, missing(root, job.err)
		}
		var res Result
		res.add(job.hits, limit(s))
		return res, context.Cause(ctx)
	}
	return grepAll(ctx, w, &lines, limit(s))
}

// grepAll searches several files at a time and puts the hits in order.
func grepAll(ctx context.Context, w *walk, lines *scanner, most int) (res Result, err error) {
	outer := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.ctx = ctx
	n := max(2, runtime.GOMAXPROCS(0))
	work, order := make(chan *job, 16*n), make(chan *job, 16*n)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range n {
		s := *lines
		wg.Go(func() {
			for j := range work {
				if ctx.Err() == nil {
					s.scan(ctx, j)
				}
				close(j.done)
			}
		})
	}
	wg.Go(func() {
		defer close(order)
		defer close(work)
		w.each(func(f found) bool {
			j := &job{path: f.path, done: make(chan struct{})}
			select {
			case order <- j:
				work <- j // the workers always take it
				return true
			case <-ctx.Done():
				return false
			}
		})
	})
	unreadable := 0
	for j := range order {
		<-j.done
		switch {
		case res.More:
		case j.err != nil:
			unreadable++
		case !res.add(j.hits, most):
			stop()
		}
	}
	res.Unreadable = unreadable + w.unreadable
	return res, context.Cause(outer)
}

// add adds hits, and reports whether there is room for more.
func (r *Result) add(hits []sandbox.Hit, most int) bool {
	for _, h := range hits {
		if len(r.Hits) == most {
			r.More = true
			return false
		}
		r.Hits = append(r.Hits, h)
	}
	return true
}

func limit(s sandbox.Search) int {
	if s.Max <= 0 || s.Max > sandbox.MaxHits {
		return sandbox.MaxHits
	}
	return s.Max
}

func missing(name string, err error) error {
	var p *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s does not exist", name)
	case errors.As(err, &p):
		return fmt.Errorf("%s: %w", name, p.Err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// A found is a file, or a folder, that the rules do not leave out.
type found struct {
	path string
	dir  bool
}

// A walk visits what is below a folder, in the order of the paths.
type walk struct {
	ctx        context.Context
	root       string
	deerflow   bool
	files      *glob // which paths are reported; nil: all
	dirs       bool  // folders are reported, too
	levels     int   // how deep the walk goes; 0: to the end
	unreadable int
	visit      func(found) bool
}

func newWalk(ctx context.Context, root string, deerflow bool) *walk {
	return &walk{ctx: ctx, root: path.Clean(root), deerflow: deerflow}
}

// each calls visit until it returns false, or the context ends.
func (w *walk) each(visit func(found) bool) {
	w.visit = visit
	var above *ignores
	if !w.deerflow {
		for _, dir := range parents(w.root) {
			above = above.in(dir)
		}
	}
	w.dir(w.root, above, 0, 1)
}

// parents returns the folders that a folder is in, the outermost first.
func parents(dir string) (out []string) {
	for i := 0; i < len(dir); i++ {
		if dir[i] == '/' && len(dir) > 1 {
			out = append(out, dir[:max(i, 1)])
		}
	}
	return out
}

// An entry is a name in a folder. A walk holds those of the folders that it is in, which may be many.
type entry struct {
	name string
	kind fs.FileMode
}

// dir visits what is in a folder. dev is the device of the folder that it is in.
func (w *walk) dir(dir string, above *ignores, dev uint64, level int) bool {
	entries, on, ok := w.read(dir, dev)
	if !ok {
		return w.ctx.Err() == nil
	}
	var ign *ignores
	if !w.deerflow {
		ign = above.in(dir)
	}
	for _, e := range entries {
		if w.ctx.Err() != nil {
			return false
		}
		name := path.Join(dir, e.name)
		if dir != "/" { // which is faster
			name = dir + "/" + e.name
		}
		isDir := e.kind.IsDir()
		asked := w.files == nil || w.files.match(name, e.name)
		listed := asked && (!isDir || w.dirs)
		switch {
		case w.deerflow && junk(e.name):
			continue
		case w.deerflow:
		case asked && w.files != nil: // the rules do not apply, as with rg -g
		case ign.match(name, e.name, isDir):
			continue
		}
		if listed && !w.visit(found{name, isDir}) {
			return false
		}
		if isDir && (w.levels == 0 || level < w.levels) && !w.dir(name, ign, on, level+1) {
			return false
		}
	}
	return true
}

// read returns the names in a folder, in order, and its device.
func (w *walk) read(dir string, dev uint64) (entries []entry, on uint64, ok bool) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		w.unreadable++
		return nil, 0, false
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil {
		on = st.Dev
	}
	if on != dev && dir != w.root && virtual(f) {
		return nil, 0, false
	}
	for w.ctx.Err() == nil {
		part, err := f.ReadDir(1024)
		for _, e := range part {
			kind := e.Type()
			if kind.IsDir() || kind.IsRegular() {
				entries = append(entries, entry{e.Name(), kind})
			}
		}
		if len(part) == 0 {
			if err != nil && err != io.EOF {
				w.unreadable++
			}
			break
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries, on, true
}

// virtual reports whether a folder is of a file system that holds no files, such as /proc. A search
// from / would not end there.
func virtual(f *os.File) bool {
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return false
	}
	switch int64(fs.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
		unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.DEVPTS_SUPER_MAGIC:
		return true
	}
	return false
}

// junk reports whether DeerFlow leaves a name out.
func junk(name string) bool {
	if junkNames[name] {
		return true
	}
	for _, end := range junkEnds {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return strings.HasPrefix(name, ".upload-") && strings.HasSuffix(name, ".part")
}

var junkEnds = []string{".egg-info", ".swp", ".swo", "~", ".lnk", ".log", ".tmp", ".temp", ".bak", ".cache"}

var junkNames = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range strings.Fields(`.git .svn .hg .bzr node_modules __pycache__ .venv venv .env env .tox .nox
		.eggs site-packages dist build .next .nuxt .output .turbo target out .idea .vscode .project .classpath
		.settings .DS_Store Thumbs.db desktop.ini logs .coverage coverage .nyc_output htmlcov .pytest_cache
		.mypy_cache .ruff_cache`) {
		m[name] = true
	}
	return m
}()
