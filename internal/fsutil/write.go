package fsutil

import (
	"os"
	"path/filepath"
)

// Partial is the suffix of a file that is being written. Files left over from a crash may be
// removed.
const Partial = ".tmp"

// WriteFile writes a file atomically: readers, and the state after a crash, have either the old or
// the new file. When it returns nil, the file and its name are durable.
func WriteFile(name string, data []byte) error {
	f, err := os.OpenFile(name+Partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(name+Partial, name)
	}
	if err != nil {
		os.Remove(name + Partial)
		return err
	}
	return SyncDir(filepath.Dir(name))
}

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
