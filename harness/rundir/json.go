package rundir

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

const partial = ".tmp"

// readJSON reads a file with a version in it. The version is looked at first, as a newer form may not fit.
func readJSON(name string, version *int, v any) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var head struct{ V int }
	if err := json.Unmarshal(data, &head); err == nil && head.V > Version {
		return fmt.Errorf("%s was %w (form %d, this program reads up to %d): use that one", filepath.Base(name), ErrNewer, head.V, Version)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s is damaged: %w; put a copy in its place", filepath.Base(name), err)
	}
	if *version == 0 {
		return fmt.Errorf("%s is damaged: it says no version; put a copy in its place", filepath.Base(name))
	}
	return nil
}

// writeJSON writes a file in one step: a reader, and a crash, see the old one or the new one.
func writeJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name+partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(name+partial, name)
	}
	if err != nil {
		os.Remove(name + partial)
		return err
	}
	return syncDir(filepath.Dir(name))
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
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
