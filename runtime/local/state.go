package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

func (b *box) stateFile() string { return filepath.Join(b.d.state, b.id+".json") }

// saveState writes the box's file, before its groups and its directory are created. It is used only
// after a crash, so an error is ignored. Process 1 is not in it: it has the ID among its arguments.
func (b *box) saveState(groups []string) {
	e := entry{Owner: b.owner, ID: b.id, Dir: b.tmp, Groups: groups}
	data, err := json.Marshal(e)
	if err != nil {
		return
	}
	if os.WriteFile(b.stateFile(), data, 0o600) != nil && os.MkdirAll(b.d.state, 0o700) == nil {
		os.WriteFile(b.stateFile(), data, 0o600)
	}
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
		return n, errors.Join(append(errs, fmt.Errorf("%s may have been written by others: remove it", d.state))...)
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
		os.Remove(p)
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
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		args := strings.Split(string(b), "\x00")
		if len(args) < 4 || args[0] != isolate.Name || args[1] != "serve" || args[3] != id {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

// clear kills what is still running, and removes the rest.
func (e *entry) clear() error {
	if e.ID != "" {
		for _, pid := range executors(e.ID) {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue
			}
			if slices.Contains(executors(e.ID), pid) { // check again, now that the pidfd holds the PID
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
