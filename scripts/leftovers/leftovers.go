// Package leftovers finds what runs of evalrun have left on this machine: processes, files in their
// temporary directory, state files of drivers, control groups and mounts. Crash and attack tests
// compare the state before and after.
package leftovers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Adopt makes this process the subreaper of its descendants, so that orphaned processes are found.
func Adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// OwnMounts restarts this program, in the same process, in a separate mount namespace if permitted.
// Otherwise mounts made by others at the same time would look like leftovers. It must be called
// first.
func OwnMounts() {
	const done = "EVALRUN_OWN_MOUNTS"
	if os.Geteuid() != 0 || os.Getenv(done) != "" {
		return
	}
	runtime.LockOSThread() // exec keeps only this thread
	defer runtime.UnlockOSThread()
	if unix.Unshare(unix.CLONE_NEWNS) != nil || unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") != nil {
		return
	}
	unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), done+"=1"))
}

// A Set is a set of things that exist.
type Set map[string]bool

// Now lists what exists; tmp is the temporary directory of the runs. It ignores what belongs to
// living processes that are not ours, because others use this machine too. No child process that is
// waited for elsewhere may be running.
func Now(tmp string) Set {
	// Adopted processes that have ended only have to be reaped; they are not leftovers.
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
			break
		}
	}
	out := Set{}
	add := func(kind, what string) { out[kind+" "+what] = true }
	ours := map[int]bool{}
	for _, pid := range below(os.Getpid()) {
		ours[pid] = true
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		add("process", fmt.Sprintf("%d %q", pid, bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
	}
	entries, _ := os.ReadDir(tmp)
	for _, e := range entries {
		add("file", filepath.Join(tmp, e.Name()))
	}
	foreign := map[string]bool{} // sandboxes of other processes
	for _, dir := range []string{"/run/evalrun/local", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "evalrun/local")} {
		states, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		for _, name := range states {
			var s struct {
				Owner struct {
					PID int `json:"pid"`
				} `json:"owner"`
			}
			data, err := os.ReadFile(name)
			if err != nil {
				continue
			}
			json.Unmarshal(data, &s)
			if pid := s.Owner.PID; pid > 0 && !ours[pid] && pid != os.Getpid() &&
				syscall.Kill(pid, 0) != syscall.ESRCH {
				foreign[strings.TrimSuffix(filepath.Base(name), ".json")] = true
				continue
			}
			add("state file", name)
		}
	}
	filepath.WalkDir("/sys/fs/cgroup", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if id, ok := strings.CutPrefix(d.Name(), "evalrun-"); ok {
			if !foreign[id] && !strings.HasPrefix(id, "probe-") {
				add("control group", name)
			}
			return fs.SkipDir
		}
		return nil
	})
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for l := range strings.Lines(string(mounts)) {
		add("mount", strings.TrimSpace(l))
	}
	return out
}

// After waits until nothing exists that did not exist before, and lists what remains.
func After(tmp string, before Set, wait time.Duration) []string {
	var left Set
	for end := time.Now().Add(wait); ; time.Sleep(50 * time.Millisecond) {
		now := Now(tmp)
		if left == nil {
			left = Set{}
			for k := range now {
				if !before[k] {
					left[k] = true
				}
			}
		}
		for k := range left {
			if !now[k] {
				delete(left, k)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	var out []string
	for k := range left {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// below returns the descendants of a process, without zombies.
func below(root int) []int {
	parents := map[int]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		if f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])); len(f) > 1 && f[0] != "Z" {
			parents[pid], _ = strconv.Atoi(f[1])
		}
	}
	var out []int
	for pid := range parents {
		for p, depth := parents[pid], 0; p > 0 && depth < 1000; p, depth = parents[p], depth+1 {
			if p == root {
				out = append(out, pid)
				break
			}
		}
	}
	return out
}
