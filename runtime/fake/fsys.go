package fake

import (
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A filesystem is a file tree in memory, with links. Its methods take absolute names and are safe
// for concurrent use.
type filesystem struct {
	mu   sync.Mutex
	root *node // nil until the first write
	used int64
	max  int64 // 0: no limit
}

type node struct {
	mode fs.FileMode
	mod  time.Time
	// data is replaced or appended to, never changed in place, so that it can be read without the
	// lock.
	data []byte
	link string
	kids map[string]*node
}

func newDir(perm fs.FileMode) *node {
	return &node{mode: fs.ModeDir | perm, mod: time.Now(), kids: map[string]*node{}}
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// top returns the root directory. The first call creates it, with an empty /tmp.
func (f *filesystem) top() *node {
	if f.root == nil {
		f.root = newDir(0o755)
		f.root.kids["tmp"] = newDir(0o777 | fs.ModeSticky)
	}
	return f.root
}

// find returns the directory of name, its last element, and the file there (nil if there is none).
// It follows links in the path, and a link at its end if follow is set. The caller holds mu.
func (f *filesystem) find(name string, follow bool) (dir *node, base string, n *node, err error) {
	parts := split(name)
	dir, n = f.top(), f.top()
	stack := []*node{n}
	for links := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		if n == nil {
			return nil, "", nil, fs.ErrNotExist
		}
		if !n.mode.IsDir() {
			return nil, "", nil, syscall.ENOTDIR
		}
		if part == ".." {
			if len(stack) > 1 {
				stack = stack[:len(stack)-1]
			}
			n = stack[len(stack)-1]
			dir, base = n, ""
			continue
		}
		dir, base = n, part
		n = dir.kids[part]
		if n != nil && n.mode&fs.ModeSymlink != 0 && (follow || len(parts) > 0) {
			if links++; links > 40 {
				return nil, "", nil, syscall.ELOOP
			}
			parts = append(split(n.link), parts...)
			if strings.HasPrefix(n.link, "/") {
				stack = stack[:1]
			}
			n = stack[len(stack)-1]
			continue
		}
		if n != nil {
			stack = append(stack, n)
		}
	}
	return dir, base, n, nil
}

// split returns the elements of a path. It keeps "..", since "link/.." is the parent of the link's
// target.
func split(name string) []string {
	return slices.DeleteFunc(strings.Split(name, "/"), func(s string) bool { return s == "" || s == "." })
}

func (f *filesystem) stat(name string) (fs.FileInfo, error)  { return f.info(name, true) }
func (f *filesystem) lstat(name string) (fs.FileInfo, error) { return f.info(name, false) }

func (f *filesystem) info(name string, follow bool) (fs.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, base, n, err := f.find(name, follow)
	if err == nil && n == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return n.info(base), nil
}

func (f *filesystem) read(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _, n, err := f.find(name, true)
	switch {
	case err != nil:
	case n == nil:
		err = fs.ErrNotExist
	case n.mode.IsDir():
		err = syscall.EISDIR
	case !n.mode.IsRegular():
		err = syscall.EINVAL
	default:
		return n.data, nil
	}
	return nil, pathError("open", name, err)
}

// open opens or creates a file.
func (f *filesystem) open(name string, perm fs.FileMode, truncate bool) (*node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, base, n, err := f.find(name, true)
	switch {
	case err != nil:
	case n == nil:
		n = &node{mode: perm.Perm(), mod: time.Now()}
		dir.kids[base] = n
	case n.mode.IsDir():
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	if truncate {
		f.used -= int64(len(n.data))
		n.data = nil
	}
	return n, nil
}

// grow appends to an open file, up to the size of the disk.
func (f *filesystem) grow(n *node, p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.max > 0 && f.used+int64(len(p)) > f.max {
		p, err = p[:max(0, f.max-f.used)], syscall.ENOSPC
	}
	n.data = append(n.data, p...)
	n.mod = time.Now()
	f.used += int64(len(p))
	return len(p), err
}

func (f *filesystem) write(name string, data []byte, perm fs.FileMode) error {
	n, err := f.open(name, perm, true)
	if err != nil {
		return err
	}
	if _, err := f.grow(n, data); err != nil {
		return pathError("write", name, err)
	}
	return nil
}

// make creates a link, a pipe or a directory.
func (f *filesystem) make(op, name string, made *node) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, base, n, err := f.find(name, false)
	if err == nil && n != nil {
		err = fs.ErrExist
	}
	if err != nil {
		return pathError(op, name, err)
	}
	made.mod = time.Now()
	dir.kids[base] = made
	return nil
}

func (f *filesystem) chmod(name string, perm fs.FileMode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _, n, err := f.find(name, true)
	if err == nil && n == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return pathError("chmod", name, err)
	}
	n.mode = n.mode&^fs.ModePerm | perm.Perm()
	return nil
}

func (f *filesystem) hardLink(old, name string) error {
	f.mu.Lock()
	_, _, n, err := f.find(old, false)
	f.mu.Unlock()
	switch {
	case err == nil && n == nil:
		err = fs.ErrNotExist
	case err == nil && n.mode.IsDir():
		err = syscall.EPERM
	}
	if err != nil {
		return pathError("link", old, err)
	}
	return f.make("link", name, n)
}

// mkdirAll creates a directory and its parents. It follows links.
func (f *filesystem) mkdirAll(name string, perm fs.FileMode) error {
	at := "/"
	for _, part := range split(name) {
		at = at + part + "/"
		if fi, err := f.stat(at); err == nil && fi.IsDir() {
			continue
		}
		if err := f.make("mkdir", strings.TrimSuffix(at, "/"), newDir(perm)); err != nil {
			return err
		}
	}
	return nil
}

// place puts made at rel below dir, as Put specifies: it follows no links and replaces files that
// are in the way.
func (f *filesystem) place(dir *node, rel string, made *node) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		part, rest, more := strings.Cut(rel, "/")
		n := dir.kids[part]
		if !more {
			if n != nil && n.mode.IsDir() && made.mode.IsDir() {
				n.mode = made.mode
				return nil
			}
			if n != nil && n.mode.IsDir() {
				return syscall.EISDIR
			}
			size := int64(len(made.data))
			if n != nil {
				size -= n.size()
			}
			if f.max > 0 && size > 0 && f.used+size > f.max {
				return syscall.ENOSPC
			}
			f.used += size
			dir.kids[part] = made
			return nil
		}
		if n == nil || !n.mode.IsDir() {
			if n != nil {
				f.used -= n.size()
			}
			n = newDir(0o755)
			dir.kids[part] = n
		}
		dir, rel = n, rest
	}
}

func (n *node) size() int64 {
	s := int64(len(n.data))
	for _, k := range n.kids {
		s += k.size()
	}
	return s
}

func (n *node) info(name string) fs.FileInfo {
	i := info{name: path.Base("/" + name), mode: n.mode, mod: n.mod, size: int64(len(n.data)), link: n.link}
	if n.link != "" {
		i.size = int64(len(n.link))
	}
	return i
}

type info struct {
	name string
	mode fs.FileMode
	mod  time.Time
	size int64
	link string
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.mod }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return nil }
