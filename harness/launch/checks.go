package launch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/evalrun/evalrun/internal/fsutil"
)

// Limits of a file of checks.
const (
	checksVersion = 1
	maxChecks     = 512 << 20 // bytes
	maxReference  = 64 << 20  // bytes of one reference
)

// Checks is a file with references of second opinions, which machines and users share. What is in
// it may come from anybody, so it is only used for references; the benchmark decodes each strictly.
// The file is JSON: its version and the references by the digests of their keys, as in the cache.
type Checks struct {
	name  string
	write bool

	mu    sync.Mutex
	refs  map[string]json.RawMessage // read, or to be written
	asked map[string]bool            // the references that were looked for, and whether the file has them
	used  bool                       // some reference of the file was used
}

type checksFile struct {
	Version    int                        `json:"evalrun_checks"`
	References map[string]json.RawMessage `json:"references"`
}

// OpenChecks reads the file of checks at name. With write, the references that a run uses or makes
// are merged into the file by [Checks.Save] and those in it are not used; it need not exist.
func OpenChecks(name string, write bool) (*Checks, error) {
	c := &Checks{name: name, write: write, refs: map[string]json.RawMessage{}}
	refs, err := readChecks(name)
	switch {
	case write && errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(name)); err != nil { // before the check, which takes long
			return nil, fmt.Errorf("checks: the file's folder: %w", err)
		}
	case err != nil:
		return nil, err
	case !write:
		c.refs = refs
	}
	return c, nil
}

var referenceName = regexp.MustCompile(`^[0-9a-f]{32}$`)

func readChecks(name string) (map[string]json.RawMessage, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("checks: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxChecks+1))
	if err != nil {
		return nil, fmt.Errorf("checks: %w", err)
	}
	if len(data) > maxChecks {
		return nil, fmt.Errorf("checks: %s has more than %d MiB", name, maxChecks>>20)
	}
	var head struct {
		Version int `json:"evalrun_checks"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		at := int64(len(data))
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			at = syntax.Offset
		}
		line := 1 + bytes.Count(data[:min(at, int64(len(data)))], []byte("\n"))
		return nil, fmt.Errorf("checks: %s, line %d, byte %d: it is no file of checks, or damaged: %w", name, line, at, err)
	}
	switch {
	case head.Version == 0:
		return nil, fmt.Errorf("checks: %s is no file of checks: it has no evalrun_checks", name)
	case head.Version != checksVersion:
		return nil, fmt.Errorf("checks: %s has version %d, this program reads %d", name, head.Version, checksVersion)
	}
	var file checksFile
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	if err := in.Decode(&file); err != nil {
		return nil, fmt.Errorf("checks: %s: %w", name, err)
	}
	for key, ref := range file.References {
		switch {
		case !referenceName.MatchString(key):
			return nil, fmt.Errorf("checks: %s: references has %.40q, which is no digest", name, key)
		case len(ref) > maxReference:
			return nil, fmt.Errorf("checks: %s: reference %s has more than %d MiB", name, key, maxReference>>20)
		case len(ref) == 0 || ref[0] != '{':
			return nil, fmt.Errorf("checks: %s: reference %s is no object", name, key)
		}
	}
	return file.References, nil
}

// look notes that somebody looks for a reference that only an oracle makes.
func (c *Checks) look(name string) {
	if c == nil || c.write {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked = map[string]bool{}
	}
	c.asked[name] = c.refs[name] != nil
}

// missing says of how many tasks the file knows something; "": of all that were looked for.
func (c *Checks) missing() string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := 0
	for _, has := range c.asked {
		if has {
			known++
		}
	}
	if known == len(c.asked) {
		return ""
	}
	return fmt.Sprintf("%s knows %d of %s: a reference is of a task's content and of its images", c.name, known,
		count(len(c.asked), "task"))
}

// get returns a reference of the file; nil: it has none.
func (c *Checks) get(name string) []byte {
	if c == nil || c.write {
		return nil
	}
	ref := c.refs[name]
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = c.used || ref != nil
	return ref
}

// origin says where references are from, for errors; "" if none is from the file.
func (c *Checks) origin() string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.used {
		return ""
	}
	return " (with references of " + c.name + ")"
}

// note notes a reference that is to be written.
func (c *Checks) note(name string, ref []byte) {
	if c == nil || !c.write || len(ref) > maxReference {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refs[name] = ref
}

// Save merges the references that the run used into the file. Of one that is there too, the run's
// stays. Another process may do so at the same time.
func (c *Checks) Save() error {
	if c == nil || !c.write {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	dir, err := os.Open(filepath.Dir(c.name))
	if err != nil {
		return fmt.Errorf("checks: %w", err)
	}
	defer dir.Close() // ends the lock
	if err := fsutil.WaitLock(dir); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("checks: %s: %w", c.name, err)
	}
	all, err := readChecks(c.name)
	if errors.Is(err, fs.ErrNotExist) {
		all, err = map[string]json.RawMessage{}, nil
	}
	if err != nil {
		return err
	}
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	maps.Copy(all, c.refs)
	data, err := json.Marshal(checksFile{checksVersion, all})
	if err != nil {
		return fmt.Errorf("checks: %w", err)
	}
	if len(data) > maxChecks {
		return fmt.Errorf("checks: %s would have more than %d MiB", c.name, maxChecks>>20)
	}
	if err := fsutil.WriteFile(c.name, append(data, '\n')); err != nil {
		return fmt.Errorf("checks: %w", err)
	}
	return nil
}
