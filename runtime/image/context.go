package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// An entry is one file, directory or link of a build context.
type entry struct {
	name string
	mode fs.FileMode // type and permissions
	size int64
	link string
	sum  [sha256.Size]byte // of a regular file's content
}

// maxIgnore limits the size of .dockerignore.
const maxIgnore = 1 << 20

// A walk collects the entries of a context.
type walk struct {
	ctx     context.Context
	fsys    fs.FS
	ignore  *patternmatcher.PatternMatcher // nil: nothing is ignored
	negated []string                       // patterns with !, which include files again
	bytes   int64
	files   int
	known   *digestCache

	seen    int
	out     []entry
	pending []entry // ignored directories, which are included if one of their files is
}

// scanContext lists the files of a context after .dockerignore, sorted, each with its digest. A nil
// context is empty. Directories that are ignored as a whole are not read.
func scanContext(ctx context.Context, fsys fs.FS, maxBytes int64, maxFiles int, known *digestCache) ([]entry, error) {
	if fsys == nil {
		return nil, nil
	}
	w := &walk{ctx: ctx, fsys: fsys, bytes: maxBytes, files: maxFiles, known: known}
	if err := w.readIgnore(); err != nil {
		return nil, err
	}
	if err := w.dir(".", patternmatcher.MatchInfo{}); err != nil {
		return nil, err
	}
	return w.out, nil
}

// readIgnore reads Dockerfile.dockerignore, or else .dockerignore.
func (w *walk) readIgnore() error {
	for _, name := range []string{"Dockerfile.dockerignore", ".dockerignore"} {
		b, err := readSmall(w.fsys, name, maxIgnore)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		patterns, err := ignorefile.ReadAll(bytes.NewReader(b))
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if w.ignore, err = patternmatcher.New(patterns); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, p := range w.ignore.Patterns() {
			if p.Exclusion() {
				w.negated = append(w.negated, p.String())
			}
		}
		return nil
	}
	return nil
}

// readSmall reads a regular file without following links.
func readSmall(fsys fs.FS, name string, max int64) ([]byte, error) {
	info, err := fs.Lstat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(b)) > max {
		err = fmt.Errorf("it is larger than %d bytes", max)
	}
	return b, err
}

// names reads a directory in portions, so that one with millions of entries is an error and does
// not fill the memory.
func (w *walk) names(dir string) ([]fs.DirEntry, error) {
	f, err := w.fsys.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, fmt.Errorf("%q is not a folder", dir)
	}
	var all []fs.DirEntry
	for {
		part, err := d.ReadDir(1024)
		all = append(all, part...)
		w.seen += len(part)
		if w.seen > 10*w.files {
			return nil, fmt.Errorf("the context has more than %d entries, .dockerignore not applied; leave out what "+
				"the image does not need, or keep it out of the folder", 10*w.files)
		}
		if err == io.EOF || err == nil && len(part) == 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := w.ctx.Err(); err != nil {
			return nil, context.Cause(w.ctx)
		}
	}
	slices.SortFunc(all, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return all, nil
}

func (w *walk) dir(dir string, parent patternmatcher.MatchInfo) error {
	list, err := w.names(dir)
	if err != nil {
		return fmt.Errorf("reading the context's folder %q: %w", dir, err)
	}
	for _, de := range list {
		if !utf8.ValidString(de.Name()) {
			return fmt.Errorf("the context holds a name that is not UTF-8: %q in %q", de.Name(), dir)
		}
		name := path.Join(dir, de.Name())
		out, match := false, patternmatcher.MatchInfo{}
		if w.ignore != nil {
			if out, match, err = w.ignore.MatchesUsingParentResults(name, parent); err != nil {
				return fmt.Errorf(".dockerignore: matching %q: %w", name, err)
			}
		}
		if out && !(de.IsDir() && w.mayBringBack(name)) {
			continue
		}
		info, err := de.Info()
		if err != nil {
			return fmt.Errorf("reading the context: %w", err)
		}
		if !de.IsDir() {
			if err := w.add(name, info); err != nil {
				return err
			}
			continue
		}
		before := len(w.pending)
		w.pending = append(w.pending, entry{name: name, mode: info.Mode() & (fs.ModeDir | bits)})
		if !out {
			if err := w.flush(); err != nil {
				return err
			}
		}
		if err := w.dir(name, match); err != nil {
			return err
		}
		w.pending = w.pending[:min(before, len(w.pending))]
	}
	return nil
}

// bits of a mode that an image keeps.
const bits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// mayBringBack reports whether a pattern with ! could match below an ignored directory.
func (w *walk) mayBringBack(dir string) bool {
	return slices.ContainsFunc(w.negated, func(p string) bool {
		return strings.HasPrefix(p, dir+"/") || strings.ContainsAny(p, `*?[\`)
	})
}

// flush adds the parent directories of an included file.
func (w *walk) flush() error {
	w.out = append(w.out, w.pending...)
	w.pending = w.pending[:0]
	if len(w.out) > w.files {
		return fmt.Errorf("the context has more than %d files; leave out what the image does not need with "+
			".dockerignore", w.files)
	}
	return nil
}

func (w *walk) add(name string, info fs.FileInfo) (err error) {
	e := entry{name: name, mode: info.Mode() & (fs.ModeType | bits)}
	switch e.mode.Type() {
	case fs.ModeSymlink:
		if e.link, err = fs.ReadLink(w.fsys, name); err != nil {
			return fmt.Errorf("reading the context: %w", err)
		}
	case 0:
		e.size = info.Size()
		if w.bytes -= e.size; w.bytes < 0 {
			return fmt.Errorf("the context is larger than it may be: its limit is passed at %q; leave out what the "+
				"image does not need with .dockerignore", name)
		}
		if e.sum, err = w.digest(name, info); err != nil {
			return fmt.Errorf("reading the context: %w", err)
		}
	default:
		return fmt.Errorf("the context holds %q, which is neither file nor folder nor link; leave it out with "+
			".dockerignore", name)
	}
	w.pending = append(w.pending, e)
	return w.flush()
}

// digest reads a file, unless its digest is cached and it has not changed.
func (w *walk) digest(name string, info fs.FileInfo) (sum [sha256.Size]byte, err error) {
	id, stable := identity(info)
	if stable {
		if sum, ok := w.known.get(id); ok {
			return sum, nil
		}
	}
	f, err := w.fsys.Open(name)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, info.Size()+1))
	if err != nil {
		return sum, err
	}
	if n != info.Size() {
		return sum, fmt.Errorf("%q changed while it was read", name)
	}
	h.Sum(sum[:0])
	if stable {
		w.known.put(id, sum)
	}
	return sum, nil
}

// identity identifies the content of a file without reading it. It is not stable for a file that
// was changed just now, since file times are coarse.
func identity(info fs.FileInfo) (id fileID, stable bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return id, false
	}
	changed := time.Unix(st.Ctim.Unix())
	id = fileID{uint64(st.Dev), st.Ino, info.Size(), info.ModTime().UnixNano(), changed.UnixNano()}
	return id, time.Since(changed) > 2*time.Second
}
