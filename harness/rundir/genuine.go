package rundir

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// genuine looks whether all that we read and write in a run's folder are files and folders in it. A
// folder that came from somebody else may hold links that lead our writing elsewhere, and pipes
// that nobody ever writes to.
func genuine(path string) error {
	for name, depth := range map[string]int{
		planFile: 0, runFile: 0, lockFile: 0, "summary.json": 0, "summary.md": 0,
		"scratch": 0, "blobs": 1, "journal": 2, "parquet": 2,
	} {
		st, err := os.Lstat(filepath.Join(path, name))
		if err != nil {
			continue // whoever needs it says so
		}
		if err := entry(filepath.Join(path, name), fs.FileInfoToDirEntry(st), depth); err != nil {
			return err
		}
	}
	return nil
}

// entry looks at one, and at what is in it as deep as that.
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
