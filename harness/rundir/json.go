package rundir

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/harness/durable"
)

const partial = durable.Partial

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
	return durable.WriteFile(name, append(data, '\n'))
}
