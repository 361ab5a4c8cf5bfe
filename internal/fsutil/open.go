// Package fsutil opens, writes and locks files where the standard library leaves a gap. [Open]
// rejects files that are not regular and could block forever; [WriteFile] replaces a file
// atomically and durably; [Lock] is the kernel's file lock.
package fsutil

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Open opens a regular file for reading.
func Open(name string) (*os.File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// OpenFile is [os.OpenFile] for regular files.
func OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	// Check after opening, so that the file cannot be replaced in between. Open without blocking,
	// because pipes would block.
	f, err := os.OpenFile(name, flag|syscall.O_NONBLOCK, perm)
	if err != nil {
		if info, serr := os.Stat(name); serr == nil && irregular(info) {
			err = wrong(name, info) // a socket, or a pipe without a reader
		}
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = wrong(name, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadFile reads a regular file of at most limit bytes; a limit of 0 means no limit.
func ReadFile(name string, limit int64) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if limit <= 0 {
		return io.ReadAll(f)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("larger than %d bytes", limit)}
	}
	return b, err
}

// OpenIn opens a regular file or a folder in a file system.
func OpenIn(fsys fs.FS, name string) (fs.File, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if irregular(info) {
		return nil, wrong(name, info)
	}
	return fsys.Open(name)
}

// ReadIn reads a regular file of at most limit bytes in a file system.
func ReadIn(fsys fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file", name)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is larger than %d MiB", name, limit>>20)
	}
	return b, err
}

// FS returns a folder as a file system that symbolic links cannot lead out of.
func FS(dir string) (fs.FS, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return root.FS(), nil
}

func irregular(info fs.FileInfo) bool { return !info.IsDir() && !info.Mode().IsRegular() }

func wrong(name string, info fs.FileInfo) error {
	what := "a device"
	switch m := info.Mode(); {
	case m.IsDir():
		what = "a folder"
	case m&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case m&fs.ModeSocket != 0:
		what = "a socket"
	}
	return &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("not a regular file: it is %s", what)}
}
