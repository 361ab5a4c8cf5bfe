package command

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// files opens a file or folder of this machine as a file system. os.Root prevents symbolic links
// from leading out of it.
func files(name string) (*hostFiles, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("agent files: %w", err)
	}
	dir, only := name, ""
	if !fi.IsDir() {
		dir, only = filepath.Split(name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("agent files: %w", err)
	}
	return &hostFiles{root: root, FS: root.FS(), only: only}, nil
}

// hostFiles is a folder, or one file of it.
type hostFiles struct {
	fs.FS
	root *os.Root
	only string // "" means the whole folder
}

func (f *hostFiles) Close() error { return f.root.Close() }

func (f *hostFiles) Open(name string) (fs.File, error) {
	if f.only != "" && name != "." && name != f.only {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f.FS.Open(name)
}

func (f *hostFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(f.FS, name)
	if f.only == "" || err != nil {
		return all, err
	}
	for _, d := range all {
		if d.Name() == f.only {
			return []fs.DirEntry{d}, nil
		}
	}
	return nil, nil
}

func (f *hostFiles) ReadLink(name string) (string, error) { return fs.ReadLink(f.FS, name) }

func (f *hostFiles) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(f.FS, name) }

// oneFile is a file system with one file.
type oneFile struct{ name, text string }

func (o oneFile) Open(name string) (fs.File, error) {
	switch name {
	case ".":
		return &openDir{o: o}, nil
	case o.name:
		return &openFile{o, strings.NewReader(o.text)}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

type openFile struct {
	o oneFile
	*strings.Reader
}

func (f *openFile) Stat() (fs.FileInfo, error) {
	return fileInfo{f.o.name, int64(len(f.o.text)), 0o644}, nil
}
func (f *openFile) Close() error { return nil }

type openDir struct {
	o    oneFile
	done bool
}

func (d *openDir) Stat() (fs.FileInfo, error) { return fileInfo{".", 0, fs.ModeDir | 0o755}, nil }
func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: ".", Err: fs.ErrInvalid}
}
func (d *openDir) Close() error { return nil }

func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.done && n > 0 {
		return nil, io.EOF
	}
	if d.done {
		return nil, nil
	}
	d.done = true
	return []fs.DirEntry{fs.FileInfoToDirEntry(fileInfo{d.o.name, int64(len(d.o.text)), 0o644})}, nil
}

type fileInfo struct {
	name string
	size int64
	mode fs.FileMode
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) Mode() fs.FileMode  { return i.mode }
func (i fileInfo) ModTime() time.Time { return time.Time{} }
func (i fileInfo) IsDir() bool        { return i.mode.IsDir() }
func (i fileInfo) Sys() any           { return nil }
