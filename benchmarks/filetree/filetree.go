// Package filetree implements an in-memory file system, assembled from other sources, whose content
// is copied into machines.
package filetree

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Tree is a file system whose file contents are read lazily. Names need not be valid UTF-8,
// because agents choose them. Agents also choose the number and depth of directories, so each
// operation takes time proportional to its result, not to the size of the tree.
type Tree struct {
	// by clean relative name, including parent directories; "." always exists
	nodes map[string]*Node
	kids  map[string]map[string]*Node // children of each directory, by last element
}

// New returns an empty tree.
func New() *Tree { return &Tree{nodes: map[string]*Node{}, kids: map[string]map[string]*Node{}} }

// A Node is a file, a directory or a symbolic link in a tree.
type Node struct {
	Mode fs.FileMode
	Size int64
	Time time.Time
	Link string                        // target of a symbolic link
	Open func() (io.ReadCloser, error) // content of a regular file
	name string                        // last element
	// implied: nobody added the directory, only files in it
	implied bool
}

// All yields the nodes by name, in any order. Nodes may be replaced during the iteration.
func (t *Tree) All() iter.Seq2[string, *Node] { return maps.All(t.nodes) }

// Get returns the node with a clean relative name, or nil.
func (t *Tree) Get(name string) *Node { return t.nodes[name] }

// Add adds a node and its parent directories. It replaces existing nodes in its way, except a
// directory by a directory. A parent that is only implied has the mode 0755, and where it exists in
// a machine it is left as it is; see [sandbox.Implied].
func (t *Tree) Add(name string, n *Node) {
	dir := path.Dir(name)
	if dir != "." {
		if d := t.nodes[dir]; d == nil || !d.Mode.IsDir() {
			t.Add(dir, &Node{Mode: fs.ModeDir | 0o755, implied: true})
		}
	}
	if old := t.nodes[name]; old != nil && old.Mode.IsDir() {
		if n.Mode.IsDir() {
			if old.implied && !n.implied {
				old.Mode, old.Time, old.implied = n.Mode, n.Time, false
			}
			return
		}
		t.drop(name)
	}
	n.name = path.Base(name)
	t.nodes[name] = n
	if t.kids[dir] == nil {
		t.kids[dir] = map[string]*Node{}
	}
	t.kids[dir][n.name] = n
}

// drop removes a directory and everything in it.
func (t *Tree) drop(name string) {
	for k := range t.kids[name] {
		t.drop(path.Join(name, k))
	}
	delete(t.kids, name)
	delete(t.nodes, name)
}

// Text adds a small file.
func (t *Tree) Text(name string, content []byte, mode fs.FileMode) {
	t.Add(name, &Node{Mode: mode, Size: int64(len(content)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }})
}

// Overlay adds the content of a directory of fsys, replacing existing nodes.
func (t *Tree) Overlay(fsys fs.FS, dir string) error {
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
		n := &Node{Mode: info.Mode().Type() | info.Mode().Perm() | 0o444, Size: info.Size(), Time: info.ModTime()}
		switch {
		case e.IsDir():
			n.Mode |= 0o755
		case info.Mode()&fs.ModeSymlink != 0:
			if n.Link, err = fs.ReadLink(fsys, p); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			n.Open = func() (io.ReadCloser, error) { return fsys.Open(p) }
		default:
			return fmt.Errorf("%s is neither a file, a folder nor a link", p)
		}
		t.Add(name, n)
		return nil
	})
}

// Untar adds the content of a tar archive. The reader r must stay open as long as the tree is used.
// Entries for which keep returns false are skipped.
func (t *Tree) Untar(r io.ReaderAt, size int64, keep func(h *tar.Header) bool) error {
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
		if name == "." || path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") || t.Shadowed(name) ||
			keep != nil && !keep(h) {
			continue
		}
		n := &Node{Mode: fs.FileMode(h.Mode) & 0o777, Time: h.ModTime}
		switch h.Typeflag {
		case tar.TypeDir:
			n.Mode |= fs.ModeDir
		case tar.TypeSymlink:
			n.Mode, n.Link = fs.ModeSymlink|0o777, h.Linkname
		case tar.TypeReg:
			at := counted.n
			n.Size = h.Size
			n.Open = func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(r, at, h.Size)), nil }
		default:
			continue
		}
		t.Add(name, n)
	}
}

// Shadowed reports whether a parent in the name's path exists and is not a directory, because
// nothing may be written through links.
func (t *Tree) Shadowed(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if n := t.nodes[dir]; n != nil { // everything above it is a directory
			return !n.Mode.IsDir()
		}
	}
	return false
}

// A counter tracks the read offset. tar.Reader reads headers and nothing beyond them.
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

func (t *Tree) get(op, name string) (*Node, error) {
	if name == "." {
		return &Node{name: ".", Mode: fs.ModeDir | 0o755}, nil
	}
	if n := t.nodes[name]; n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

func (t *Tree) Open(name string) (fs.File, error) {
	n, err := t.get("open", name)
	if err != nil {
		return nil, err
	}
	if n.Open == nil {
		return &opened{n: n, ReadCloser: io.NopCloser(strings.NewReader(""))}, nil
	}
	r, err := n.Open()
	if err != nil {
		return nil, err
	}
	return &opened{n: n, ReadCloser: r}, nil
}

func (t *Tree) ReadDir(name string) (out []fs.DirEntry, err error) {
	if n, err := t.get("readdir", name); err != nil || !n.Mode.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	for _, k := range slices.Sorted(maps.Keys(t.kids[name])) {
		out = append(out, fs.FileInfoToDirEntry(t.kids[name][k].info()))
	}
	return out, nil
}

func (t *Tree) Stat(name string) (fs.FileInfo, error) { return t.Lstat(name) }
func (t *Tree) Lstat(name string) (fs.FileInfo, error) {
	n, err := t.get("lstat", name)
	if err != nil {
		return nil, err
	}
	return n.info(), nil
}

func (t *Tree) ReadLink(name string) (string, error) {
	n, err := t.get("readlink", name)
	if err != nil {
		return "", err
	}
	return n.Link, nil
}

// opened is a file open for reading.
type opened struct {
	n *Node
	io.ReadCloser
}

func (o *opened) Stat() (fs.FileInfo, error) { return o.n.info(), nil }

func (n *Node) info() fs.FileInfo { return nodeInfo{n} }

type nodeInfo struct{ n *Node }

func (i nodeInfo) Name() string       { return i.n.name }
func (i nodeInfo) Size() int64        { return i.n.Size }
func (i nodeInfo) Mode() fs.FileMode  { return i.n.Mode }
func (i nodeInfo) ModTime() time.Time { return i.n.Time }
func (i nodeInfo) IsDir() bool        { return i.n.Mode.IsDir() }
func (i nodeInfo) Sys() any {
	if i.n.implied {
		return sandbox.Implied{}
	}
	return nil
}
