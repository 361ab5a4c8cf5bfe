package rundir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// genuine checks that everything we read and write in a run's folder is a regular file or a folder
// in it. A folder from somebody else may contain links that redirect our writes, or pipes that
// block forever.
func genuine(path string) error {
	for name, depth := range map[string]int{
		planFile: 0, runFile: 0, lockFile: 0, "summary.json": 0, "summary.md": 0,
		"scratch": 0, "blobs": 1, "journal": 2, "parquet": 2,
	} {
		st, err := os.Lstat(filepath.Join(path, name))
		if err != nil {
			continue // reported by whoever needs the file
		}
		if err := entry(filepath.Join(path, name), fs.FileInfoToDirEntry(st), depth); err != nil {
			return err
		}
	}
	return nil
}

// entry checks one file, or a folder and its content down to the given depth.
func entry(name string, d fs.DirEntry, depth int) error {
	if !d.IsDir() {
		if d.Type().IsRegular() {
			return nil
		}
		return fmt.Errorf("%s is %s, and a run is read and written within its own folder only: put a copy of what it "+
			"leads to in its place", name, kind(d.Type()))
	}
	if depth == 0 {
		return nil
	}
	list, err := os.ReadDir(name)
	if err != nil {
		return err
	}
	for _, d := range list {
		if err := entry(filepath.Join(name, d.Name()), d, depth-1); err != nil {
			return err
		}
	}
	return nil
}

func kind(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a link"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}
