package tasks

import (
	_ "embed"
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing/fstest"
)

// core is MiniWoB++'s page contract for pages of one's own; each site has it at corePath.
//
//go:embed core.js
var core []byte

const corePath = "evalrun/core.js"

// pages are a site's files as they are served. What lies in a folder may be hostile: nothing but
// plain files is opened, and no link is followed.
type pages struct {
	items  Site
	beside fs.FS
}

func (p pages) Open(name string) (fs.File, error) {
	f, err := p.open(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist} // why is nobody's business
	}
	return f, nil
}

// open finds an item itself, or what lies below one that is a folder.
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
				// the mark tells that it is UTF-8, as all texts in a file of tasks are
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

// openPlain opens a file that neither is a link nor lies behind one.
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

// linkless says which link there is at or below a folder, as an error.
func linkless(fsys fs.FS, name string) error {
	return fs.WalkDir(fsys, name, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Type()&fs.ModeSymlink != 0 {
			err = errors.New(p + " is a link, and links are not served")
		}
		return err
	})
}
