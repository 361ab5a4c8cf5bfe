package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/isolate"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The state directory has a small file for each sandbox, with its owner and what it has outside of
// its namespaces, so that the next start can remove what a crash of the machine has left.

// An entry is one of these files.
type entry struct {
	Owner  sandbox.Owner `json:"owner"`
	ID     string        `json:"id"`
	Groups []string      `json:"groups,omitempty"`
	Dir    string        `json:"dir,omitempty"`

	// Of a sandbox that outlives its process; see find.go.
	Key     string          `json:"key,omitempty"` // who has it can reattach
	Entry   []string        `json:"entry,omitempty"`
	Gated   bool            `json:"gated,omitempty"` // it has network access, or may get it later
	Network sandbox.Network `json:"network,omitzero"`
}

func stateDir() string {
	if os.Geteuid() == 0 { // in a container, root may have no permission to
		const d = "/run/evalrun/local"
		if os.MkdirAll(d, 0o700) == nil && unix.Access(d, unix.W_OK) == nil {
			return d
		}
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" && filepath.IsAbs(d) && isDir(d) {
		return filepath.Join(d, "evalrun", "local")
	}
	return filepath.Join(os.TempDir(), "evalrun-"+strconv.Itoa(os.Geteuid()), "local")
}

const socketSuffix = ".sock"

func (d *Driver) stateFile(id string) string { return filepath.Join(d.state, id+".json") }

// stateFiles lists what a sandbox has in the state directory, in the order of removal.
func (d *Driver) stateFiles(id string) []string {
	return []string{filepath.Join(d.state, id+socketSuffix), d.stateFile(id) + ".new", d.stateFile(id)}
}

// saveState writes the box's file, before its groups and its directory are created. It is used only
// after a crash. Process 1 is not in it: it has the ID among its arguments.
func (b *box) saveState() error {
	data, err := json.Marshal(b.state)
	if err != nil {
		return err
	}
	err = os.WriteFile(b.d.stateFile(b.id), data, 0o600)
	if err != nil && os.MkdirAll(b.d.state, 0o700) == nil {
		err = os.WriteFile(b.d.stateFile(b.id), data, 0o600)
	}
	return err
}

// updateState replaces the box's file, which is complete at any moment.
func (b *box) updateState() error {
	data, err := json.Marshal(b.state)
	if err != nil {
		return err
	}
	file := b.d.stateFile(b.id)
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (d *Driver) removeState(id string) {
	for _, p := range d.stateFiles(id) {
		os.Remove(p)
	}
}

// readState reads the file of a sandbox.
func (d *Driver) readState(id string) (e entry, err error) {
	data, err := os.ReadFile(d.stateFile(id))
	if err != nil {
		return e, err
	}
	if writableByOthers(d.state) {
		return e, untrusted(d.state)
	}
	return e, json.Unmarshal(data, &e)
}

func untrusted(dir string) error {
	return fmt.Errorf("%s may have been written by others: remove it", dir)
}

// Reap removes what belongs to owners that are not alive, of this process and of earlier ones.
func (d *Driver) Reap(ctx context.Context, alive func(sandbox.Owner) bool) (int, error) {
	n := 0
	var errs []error
	d.mu.Lock()
	var mine []*box
	ours := map[string]bool{}
	for id, b := range d.live {
		if ours[id] = true; !alive(b.owner) {
			mine = append(mine, b)
		}
	}
	d.mu.Unlock()
	for _, b := range mine {
		if err := b.Close(); err != nil {
			errs = append(errs, err)
		} else {
			n++
		}
	}
	files, err := os.ReadDir(d.state)
	if err == nil && len(files) > 0 && writableByOthers(d.state) {
		return n, errors.Join(append(errs, untrusted(d.state))...)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok || ours[id] {
			continue
		}
		if err := ctx.Err(); err != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		p := filepath.Join(d.state, f.Name())
		data, err := os.ReadFile(p)
		if err != nil {
			continue // another process has removed it
		}
		var e entry
		if json.Unmarshal(data, &e) != nil {
			os.Remove(p) // incomplete because of a crash
			continue
		}
		if (e.Dir != "") != d.plain || alive(e.Owner) {
			continue
		}
		if err := e.clear(); err != nil {
			errs = append(errs, err)
			continue
		}
		d.removeState(id)
		n++
	}
	return n, errors.Join(errs...)
}

// writableByOthers reports whether another user could have written to the state directory, which
// may be in a shared temporary directory. Then its files are not trusted.
func writableByOthers(dir string) bool {
	for _, d := range []string{dir, filepath.Dir(dir)} {
		var st unix.Stat_t
		if unix.Lstat(d, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() ||
			st.Mode&0o022 != 0 {
			return true
		}
	}
	return false
}

// executors finds our own processes of a sandbox: process 1 and the supervisors, which are copies
// of it.
func executors(id string) []int {
	var found []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && isExecutor(pid, id) {
			found = append(found, pid)
		}
	}
	return found
}

func isExecutor(pid int, id string) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(string(b), "\x00")
	return len(args) >= 4 && args[0] == isolate.Name && args[1] == "serve" && args[3] == id
}

// clear kills what is still running, and removes the rest.
func (e *entry) clear() error {
	if e.ID != "" {
		for _, pid := range executors(e.ID) {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue
			}
			if isExecutor(pid, e.ID) { // check again, now that the pidfd holds the PID
				unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 5000)
			}
			unix.Close(fd)
		}
	}
	var errs []error
	for _, g := range e.Groups {
		if !strings.HasPrefix(filepath.Base(g), prefix) {
			continue
		}
		if err := removeGroup(g); err != nil {
			errs = append(errs, err)
		}
	}
	if e.Dir != "" && strings.HasPrefix(filepath.Base(e.Dir), tmpPrefix) {
		if err := removeAll(e.Dir); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeGroup kills the processes in a control group and removes it.
func removeGroup(dir string) error {
	var err error
	for range 100 {
		if err = unix.Rmdir(dir); err == nil || err == unix.ENOENT {
			return nil
		}
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for s := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(s); err == nil && pid > 1 {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return &os.PathError{Op: "rmdir", Path: dir, Err: err}
}
