package harbor

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A tree is a file system put together of files from elsewhere, to be put into a machine. Content is read when it is asked for.
type tree struct {
	nodes map[string]*node            // by clean relative name, folders on the way included; "." is always there
	kids  map[string]map[string]*node // of each folder, by last element
}

func newTree() *tree { return &tree{nodes: map[string]*node{}, kids: map[string]map[string]*node{}} }

// A node is a file, a folder or a link of a tree.
type node struct {
	name string // last element
	mode fs.FileMode
	size int64
	time time.Time
	link string
	open func() (io.ReadCloser, error)
}

// add puts a node in, with the folders on its way. What stands in the way is replaced.
func (t *tree) add(name string, n *node) {
	dir := path.Dir(name)
	if dir != "." {
		if d := t.nodes[dir]; d == nil || !d.mode.IsDir() {
			t.add(dir, &node{mode: fs.ModeDir | 0o755})
		}
	}
	if old := t.nodes[name]; old != nil && old.mode.IsDir() {
		if n.mode.IsDir() {
			return
		}
		t.drop(name)
	}
	n.name = path.Base(name)
	t.nodes[name] = n
	if t.kids[dir] == nil {
		t.kids[dir] = map[string]*node{}
	}
	t.kids[dir][n.name] = n
}

// drop removes a folder with all that is in it.
func (t *tree) drop(name string) {
	for k := range t.kids[name] {
		t.drop(path.Join(name, k))
	}
	delete(t.kids, name)
	delete(t.nodes, name)
}

// text adds a small file.
func (t *tree) text(name string, content []byte, mode fs.FileMode) {
	t.add(name, &node{mode: mode, size: int64(len(content)), open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }})
}

// overlay adds what lies in a folder of fsys, over what is there.
func (t *tree) overlay(fsys fs.FS, dir string) error {
	return fs.WalkDir(fsys, dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
		if name == "" {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		n := &node{mode: info.Mode().Type() | info.Mode().Perm() | 0o444, size: info.Size(), time: info.ModTime()}
		switch {
		case e.IsDir():
			n.mode |= 0o755
		case info.Mode()&fs.ModeSymlink != 0:
			if n.link, err = fs.ReadLink(fsys, p); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			n.open = func() (io.ReadCloser, error) { return fsys.Open(p) }
		default:
			return fmt.Errorf("%s is neither a file, a folder nor a link", p)
		}
		t.add(name, n)
		return nil
	})
}

// untar adds what a tar holds whose reader at r stays open as long as the tree is used. keep may drop entries.
func (t *tree) untar(r io.ReaderAt, size int64, keep func(h *tar.Header) bool) error {
	counted := &counter{r: io.NewSectionReader(r, 0, size)}
	tr := tar.NewReader(counted)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading kept files: %w", err)
		}
		name := path.Clean(strings.TrimSuffix(h.Name, "/"))
		if !utf8.ValidString(name) { // no fs.FS has such names; the kept tar does
			continue
		}
		if name == "." || path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") || t.linked(name) || keep != nil && !keep(h) {
			continue
		}
		n := &node{mode: fs.FileMode(h.Mode) & 0o777, time: h.ModTime}
		switch h.Typeflag {
		case tar.TypeDir:
			n.mode |= fs.ModeDir
		case tar.TypeSymlink:
			n.mode, n.link = fs.ModeSymlink|0o777, h.Linkname
		case tar.TypeReg:
			at := counted.n
			n.size = h.Size
			n.open = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(r, at, h.Size)), nil }
		default:
			continue
		}
		t.add(name, n)
	}
}

// linked reports whether a part of the name on its way is a link: nothing is written through links.
func (t *tree) linked(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if n := t.nodes[dir]; n != nil && !n.mode.IsDir() {
			return true
		}
	}
	return false
}

// A counter knows how far it has read; tar's reader reads headers and nothing beyond.
type counter struct {
	r *io.SectionReader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counter) Seek(off int64, whence int) (int64, error) {
	n, err := c.r.Seek(off, whence)
	if err == nil {
		c.n = n
	}
	return n, err
}

func (t *tree) get(op, name string) (*node, error) {
	if name == "." {
		return &node{name: ".", mode: fs.ModeDir | 0o755}, nil
	}
	if n := t.nodes[name]; n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

func (t *tree) Open(name string) (fs.File, error) {
	n, err := t.get("open", name)
	if err != nil {
		return nil, err
	}
	if n.open == nil {
		return &opened{node: n, ReadCloser: io.NopCloser(strings.NewReader(""))}, nil
	}
	r, err := n.open()
	if err != nil {
		return nil, err
	}
	return &opened{node: n, ReadCloser: r}, nil
}

func (t *tree) ReadDir(name string) (out []fs.DirEntry, err error) {
	if n, err := t.get("readdir", name); err != nil || !n.mode.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	for _, k := range slices.Sorted(maps.Keys(t.kids[name])) {
		out = append(out, fs.FileInfoToDirEntry(t.kids[name][k].info()))
	}
	return out, nil
}

func (t *tree) Stat(name string) (fs.FileInfo, error) { return t.Lstat(name) }
func (t *tree) Lstat(name string) (fs.FileInfo, error) {
	n, err := t.get("lstat", name)
	if err != nil {
		return nil, err
	}
	return n.info(), nil
}

func (t *tree) ReadLink(name string) (string, error) {
	n, err := t.get("readlink", name)
	if err != nil {
		return "", err
	}
	return n.link, nil
}

// opened is a file that is being read.
type opened struct {
	*node
	io.ReadCloser
}

func (o *opened) Stat() (fs.FileInfo, error) { return o.node.info(), nil }

func (n *node) info() fs.FileInfo { return nodeInfo{n} }

type nodeInfo struct{ n *node }

func (i nodeInfo) Name() string       { return i.n.name }
func (i nodeInfo) Size() int64        { return i.n.size }
func (i nodeInfo) Mode() fs.FileMode  { return i.n.mode }
func (i nodeInfo) ModTime() time.Time { return i.n.time }
func (i nodeInfo) IsDir() bool        { return i.n.mode.IsDir() }
func (i nodeInfo) Sys() any           { return nil }
