package fake

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

func (s *Sandbox) Put(ctx context.Context, dir string, src fs.FS) error {
	if err := s.check(ctx, "put"); err != nil {
		return err
	}
	if err := s.put(ctx, dir, src); err != nil {
		return s.err("put", err)
	}
	return nil
}

func (s *Sandbox) put(ctx context.Context, dir string, src fs.FS) error {
	if !path.IsAbs(dir) {
		return fmt.Errorf("%q is not absolute", dir)
	}
	if err := s.files.mkdirAll(dir, 0o755); err != nil {
		return err
	}
	s.files.mu.Lock()
	_, _, top, err := s.files.find(dir, true)
	s.files.mu.Unlock()
	if err != nil {
		return err
	}
	return fs.WalkDir(src, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !fs.ValidPath(strings.ToValidUTF8(name, "?")) { // names need not be UTF-8
			return fmt.Errorf("%q is not a valid file name", name)
		}
		if i, err := e.Info(); err == nil && i.Sys() == any(sandbox.Implied{}) {
			return nil
		}
		n, err := load(src, name, e)
		if err != nil {
			return err
		}
		return s.files.place(top, name, n)
	})
}

// load reads one entry of src, without following links.
func load(src fs.FS, name string, e fs.DirEntry) (*node, error) {
	fi, err := e.Info()
	if err != nil {
		return nil, err
	}
	n := &node{mode: fi.Mode().Type() | fi.Mode().Perm(), mod: fi.ModTime()}
	switch fi.Mode().Type() {
	case 0:
		n.data, err = fs.ReadFile(src, name)
	case fs.ModeDir:
		n.kids = map[string]*node{}
	case fs.ModeSymlink:
		n.link, err = fs.ReadLink(src, name)
	default:
		err = fmt.Errorf("%s: is %v, not a file, directory or link", name, fi.Mode().Type())
	}
	return n, err
}

func (s *Sandbox) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := s.check(ctx, "get"); err != nil {
		return nil, err
	}
	if !path.IsAbs(name) {
		return nil, s.err("get", fmt.Errorf("%q is not absolute", name))
	}
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	_, base, n, err := s.files.find(name, false)
	if err == nil && n == nil {
		err = fs.ErrNotExist
	}
	if errors.Is(err, syscall.ENOTDIR) {
		err = fs.ErrNotExist // a parent is a file
	}
	if err != nil {
		return nil, s.err("get", pathError("open", name, err))
	}
	if base == "" {
		base = "."
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := pack(w, base, n); err != nil {
		return nil, s.err("get", err)
	}
	if err := w.Close(); err != nil {
		return nil, s.err("get", err)
	}
	return io.NopCloser(&b), nil
}

func pack(w *tar.Writer, name string, n *node) error {
	h, err := tar.FileInfoHeader(n.info(name), n.link)
	if err != nil {
		return err
	}
	h.Name = name
	h.ModTime = n.mod.Truncate(time.Second)
	if n.mode.IsDir() {
		h.Name += "/"
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if _, err := w.Write(n.data); err != nil {
		return err
	}
	names := make([]string, 0, len(n.kids))
	for k := range n.kids {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		if err := pack(w, path.Join(name, k), n.kids[k]); err != nil {
			return err
		}
	}
	return nil
}
