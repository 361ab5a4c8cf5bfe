package docker

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The state directory has a small file for each live sandbox, with what another process of ours
// needs to reattach to it: most importantly the keys with which a host authenticates to the
// executors.

// An entry is one of these files.
type entry struct {
	Owner    sandbox.Owner     `json:"owner"`
	Host     string            `json:"engine"`
	Key      string            `json:"key"`                // of main
	Entry    []string          `json:"entry,omitempty"`    // of main
	Services map[string]saved  `json:"services,omitempty"` // by name
	Volumes  map[string]string `json:"volumes,omitempty"`
	Bridge   string            `json:"bridge,omitempty"`
	Disk     int64             `json:"disk,omitempty"`
	Orphan   int64             `json:"orphan,omitempty"`
	Network  sandbox.Network   `json:"network,omitzero"`
	Rewire   bool              `json:"rewire,omitempty"`
	Here     bool              `json:"here,omitempty"`
}

type saved struct {
	Container string   `json:"container"`
	Key       string   `json:"key"`
	Entry     []string `json:"entry,omitempty"`
}

func stateDir() string {
	if os.Geteuid() == 0 {
		const d = "/run/evalrun/docker"
		if os.MkdirAll(d, 0o700) == nil && unix.Access(d, unix.W_OK) == nil {
			return d
		}
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" && filepath.IsAbs(d) && isDir(d) {
		return filepath.Join(d, "evalrun", "docker")
	}
	return filepath.Join(os.TempDir(), "evalrun-"+strconv.Itoa(os.Geteuid()), "docker")
}

func (d *Driver) file(id string) string { return filepath.Join(d.state, id+".json") }

// saveState writes the box's file, with the current network policy. Without it the sandbox works,
// but ends with this process.
func (b *box) saveState(n sandbox.Network) error {
	e := entry{
		Owner: b.spec.Owner, Host: b.d.engine.name(), Key: hex.EncodeToString(b.main.key), Entry: b.main.args,
		Volumes: b.volumes, Bridge: b.bridge, Disk: b.spec.Disk,
		Orphan: int64(b.spec.Orphan), Network: n, Rewire: b.spec.Rewire, Here: b.here,
	}
	for name, m := range b.services {
		if e.Services == nil {
			e.Services = map[string]saved{}
		}
		e.Services[name] = saved{m.name, hex.EncodeToString(m.key), m.args}
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	// Write and rename, so that no incomplete file is read.
	tmp := b.d.file(b.id) + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		if os.MkdirAll(b.d.state, 0o700) != nil || os.WriteFile(tmp, data, 0o600) != nil {
			return nil
		}
	}
	if os.Rename(tmp, b.d.file(b.id)) != nil {
		os.Remove(tmp)
	}
	return nil
}

func (b *box) removeState() { os.Remove(b.d.file(b.id)) }

// readState reads the file of a sandbox.
func (d *Driver) readState(id string) (entry, error) {
	var e entry
	if err := private(d.state); err != nil {
		return e, err
	}
	data, err := os.ReadFile(d.file(id))
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(data, &e)
}
