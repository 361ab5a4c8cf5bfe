package tasks

import (
	_ "embed"
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"
)

// core implements MiniWoB++'s page contract for custom pages. Each site serves it at corePath.
//
//go:embed core.js
var core []byte

const corePath = "evalrun/core.js"

// pages serves the files of a site. The directory may be hostile, so only regular files are opened
// and no link is followed.
type pages struct {
	items  Site
	beside fs.FS
}

func (p pages) Open(name string) (fs.File, error) {
	f, err := p.open(name)
	if err != nil {
		// do not reveal the reason to the page
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f, nil
}

// open opens an item, or a file below an item that is a directory.
func (p pages) open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	if name == corePath {
		return inline(core)
	}
	for at := name; ; at = path.Dir(at) {
		if i, ok := p.items[at]; ok {
			rest := strings.TrimPrefix(strings.TrimPrefix(name, at), "/")
			if at == "." {
				rest = name
			}
			switch {
			case i.From != "":
				return openPlain(p.beside, path.Join(path.Clean(i.From), rest))
			case rest != "":
				return nil, fs.ErrNotExist
			case i.Base64 != nil:
				return inline(i.Base64)
			case path.Ext(name) == ".html" && !strings.HasPrefix(i.Text, "\ufeff"):
				// the byte order mark declares UTF-8, the encoding of all text in a task file
				return inline([]byte("\ufeff" + i.Text))
			}
			return inline([]byte(i.Text))
		}
		if at == "." {
			return nil, fs.ErrNotExist
		}
	}
}

func inline(content []byte) (fs.File, error) {
	return fstest.MapFS{"x": {Data: content}}.Open("x")
}

// openPlain opens a regular file, without following links anywhere in its path.
func openPlain(fsys fs.FS, name string) (fs.File, error) {
	if fsys == nil {
		return nil, errors.New("these tasks have no folder of their own")
	}
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	for i := range name + "/" {
		if i < len(name) && name[i] != '/' {
			continue
		}
		info, err := fs.Lstat(fsys, name[:i])
		switch {
		case err != nil:
			return nil, err
		case i < len(name) && !info.IsDir(), i == len(name) && !info.Mode().IsRegular():
			return nil, fs.ErrNotExist
		}
	}
	return fsys.Open(name)
}

// linkless returns an error if there is a link at or below name.
func linkless(fsys fs.FS, name string) error {
	return fs.WalkDir(fsys, name, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Type()&fs.ModeSymlink != 0 {
			err = errors.New(p + " is a link, and links are not served")
		}
		return err
	})
}
