package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// groups are the control groups that we can use: a directory for each controller (v1), or one for
// all (v2).
type groups struct {
	v2   string            // directory, or ""
	cpu2 bool              // v2: CPU limits are available
	own  map[string]string // v1: controller → folder
}

// prefix is the prefix of the names of our control groups, by which a later start recognizes them.
const prefix = "evalrun-"

// findGroups finds out once which groups can be used.
var findGroups = sync.OnceValue(func() groups {
	g := groups{own: map[string]string{}}
	mounts, _ := os.ReadFile("/proc/self/mounts")
	paths, _ := os.ReadFile("/proc/self/cgroup")
	own := map[string]string{} // controller → path; "" is v2
	for line := range strings.Lines(string(paths)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				own[c] = f[2]
			}
		}
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		switch f[2] {
		case "cgroup":
			for _, c := range []string{"memory", "pids", "cpu"} {
				p, ok := own[c]
				if !ok || !hasOption(f[3], c) {
					continue
				}
				// Below our own group, or at the root if our own is not visible.
				for _, dir := range []string{filepath.Join(f[1], p), f[1]} {
					if mayMake(dir) {
						g.own[c] = dir
						break
					}
				}
			}
		case "cgroup2":
			// As root, if our own group cannot be divided, use a group at the top, as container
			// engines do.
			dirs := []string{filepath.Join(f[1], own[""])}
			if os.Geteuid() == 0 {
				dirs = append(dirs, filepath.Join(f[1], "evalrun"))
			} else if filepath.Base(dirs[0]) == mainGroup {
				dirs[0] = filepath.Dir(dirs[0])
			}
			for i, dir := range dirs {
				if i > 0 && os.Mkdir(dir, 0o755) != nil && !isDir(dir) {
					continue
				}
				if divide(dir, "memory", "pids") && mayMake(dir) {
					g.v2, g.cpu2 = dir, divide(dir, "cpu")
					break
				}
				if i > 0 {
					os.Remove(dir)
				}
			}
		}
	}
	if len(g.own) > 0 && g.own["memory"] != "" {
		g.v2 = ""
	}
	return g
})

// mainGroup is the name of the child group for the processes of a divided group.
const mainGroup = prefix + "main"

// divide makes it possible for a group (v2) to have children with limits, and reports whether it
// did. A group with processes cannot have them: in a group that was delegated to an ordinary user
// (systemd-run --user --scope -p Delegate=yes), its processes first move to a child group.
func divide(dir string, controllers ...string) bool {
	control := filepath.Join(dir, "cgroup.subtree_control")
	all := "+" + strings.Join(controllers, " +")
	err := writeFile(control, all)
	if err == unix.EBUSY && os.Geteuid() != 0 {
		into := filepath.Join(dir, mainGroup)
		if err := os.Mkdir(into, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return false
		}
		for range 10 { // the moved processes may have started others
			b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for pid := range strings.FieldsSeq(string(b)) {
				writeFile(filepath.Join(into, "cgroup.procs"), pid)
			}
			if err = writeFile(control, all); err != unix.EBUSY {
				break
			}
		}
	}
	return err == nil
}

func isDir(p string) bool {
	fi, err := os.Stat(p)
	return err == nil && fi.IsDir()
}

func hasOption(opts, o string) bool {
	for x := range strings.SplitSeq(opts, ",") {
		if x == o {
			return true
		}
	}
	return false
}

// mayMake tries to create a group that processes can enter.
func mayMake(dir string) bool {
	d := filepath.Join(dir, fmt.Sprintf("%sprobe-%d-%d", prefix, os.Getpid(), time.Now().UnixNano()))
	if os.Mkdir(d, 0o755) != nil {
		return false
	}
	defer os.Remove(d)
	f, err := os.OpenFile(filepath.Join(d, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

func (g groups) has(controller string) bool {
	if g.v2 != "" {
		return controller != "cpu" || g.cpu2
	}
	return g.own[controller] != ""
}

// A group is the control groups of one sandbox.
type group struct {
	v2    bool
	dirs  []string // in the order of their creation
	tasks []*os.File
	born  *os.File // v2: the group itself
	mem   string   // directory with the memory files, or ""
	cpu   string

	mu   sync.Mutex
	oom  *os.File // file with the count of OOM kills; kept open, since it is read after each command
	last int64
}

// dirs returns the groups that make would create, so that they can be recorded before.
func (g groups) dirs(id string, spec *sandbox.Spec) []string {
	if g.v2 != "" {
		return []string{filepath.Join(g.v2, prefix+id)}
	}
	var dirs []string
	for c, wanted := range map[string]bool{"memory": spec.Memory > 0, "pids": spec.Pids > 0, "cpu": true} {
		if base := g.own[c]; base != "" && wanted {
			dirs = append(dirs, filepath.Join(base, prefix+id))
		}
	}
	return dirs
}

// make creates the groups for a spec. If it fails, it leaves nothing behind.
func (g groups) make(id string, spec *sandbox.Spec) (cg *group, err error) {
	cg = &group{}
	defer func() {
		if err != nil {
			cg.close()
			cg.remove()
		}
	}()
	if g.v2 != "" {
		cg.v2 = true
		d := filepath.Join(g.v2, prefix+id)
		files := [][2]string{
			{"pids.max", strconv.Itoa(spec.Pids + executor.OwnPids)},
			{"memory.max", strconv.FormatInt(spec.Memory, 10)}, {"memory.swap.max", "0"}, {"memory.oom.group", "0"},
			{"cpu.weight", strconv.Itoa(sandbox.CPUShare * 100 / 1024)},
		}
		if spec.CPUs > 0 && g.cpu2 {
			files = append(files, [2]string{"cpu.max", fmt.Sprintf("%d 100000", int64(spec.CPUs*100000))})
		}
		if err := cg.dir(d, files); err != nil {
			return cg, err
		}
		cg.mem, cg.cpu = d, d
		cg.born, err = os.OpenFile(d, os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err == nil {
			cg.oom, _ = os.Open(filepath.Join(d, "memory.events"))
		}
		return cg, err
	}
	enter := func(d string) error {
		f, err := os.OpenFile(filepath.Join(d, "tasks"), os.O_WRONLY, 0)
		if err == nil {
			cg.tasks = append(cg.tasks, f)
		}
		return err
	}
	if base := g.own["memory"]; base != "" && spec.Memory > 0 {
		d := filepath.Join(base, prefix+id)
		lim := strconv.FormatInt(spec.Memory, 10)
		if err := cg.dir(d, [][2]string{{"memory.limit_in_bytes", lim},
			{"memory.memsw.limit_in_bytes", lim}}); err != nil {
			return cg, err
		}
		cg.mem = d
		cg.oom, _ = os.Open(filepath.Join(d, "memory.oom_control"))
		if err := enter(d); err != nil {
			return cg, err
		}
	}
	if base := g.own["pids"]; base != "" && spec.Pids > 0 {
		d := filepath.Join(base, prefix+id)
		if err := cg.dir(d, [][2]string{{"pids.max", strconv.Itoa(spec.Pids + ownPids)}}); err != nil {
			return cg, err
		}
		if err := enter(d); err != nil {
			return cg, err
		}
	}
	if base := g.own["cpu"]; base != "" {
		d := filepath.Join(base, prefix+id)
		files := [][2]string{{"cpu.shares", strconv.Itoa(sandbox.CPUShare)}}
		if spec.CPUs > 0 {
			quota := strconv.FormatInt(int64(spec.CPUs*100000), 10)
			files = append(files, [2]string{"cpu.cfs_period_us", "100000"}, [2]string{"cpu.cfs_quota_us", quota})
		}
		if err := cg.dir(d, files); err != nil {
			return cg, err
		}
		cg.cpu = d
		if err := enter(d); err != nil {
			return cg, err
		}
	}
	return cg, nil
}

// ownPids is the number of our own processes if process 1 is not in the group: the supervisor of
// each command and the thread that starts them.
const ownPids = 16

func (cg *group) dir(d string, files [][2]string) error {
	if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making a control group: %w", err)
	}
	cg.dirs = append(cg.dirs, d)
	for _, f := range files {
		err := writeFile(filepath.Join(d, f[0]), f[1])
		// Swap accounting and a few newer files do not exist everywhere.
		if err != nil && !(errors.Is(err, os.ErrNotExist) || strings.Contains(f[0], "memsw") ||
			strings.Contains(f[0], "swap")) {
			return fmt.Errorf("setting %s: %w", f[0], err)
		}
	}
	return nil
}

func writeFile(p, s string) error {
	fd, err := unix.Open(p, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for { // these files return EINTR for the signals that the Go runtime sends its threads
		if _, err = unix.Write(fd, []byte(s)); err != unix.EINTR {
			return err
		}
	}
}

// close closes the descriptors that were needed for the start.
func (cg *group) close() {
	for _, f := range cg.tasks {
		f.Close()
	}
	cg.tasks = nil
	if cg.born != nil {
		cg.born.Close()
		cg.born = nil
	}
}

func (cg *group) remove() {
	for _, d := range cg.dirs {
		unix.Rmdir(d)
	}
}

// oomKills returns the number of processes that the kernel has killed for exceeding the sandbox's
// limit.
func (cg *group) oomKills() int64 {
	if cg == nil || cg.oom == nil {
		return 0
	}
	var b [256]byte
	n, err := cg.oom.ReadAt(b[:], 0)
	if n == 0 && err != nil {
		return 0
	}
	for line := range strings.Lines(string(b[:n])) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			k, _ := strconv.ParseInt(v, 10, 64)
			return k
		}
	}
	return 0
}

// oomSince reports whether there was a kill since the last call.
func (cg *group) oomSince() bool {
	cg.mu.Lock()
	defer cg.mu.Unlock()
	n := cg.oomKills()
	more := n > cg.last
	cg.last = n
	return more
}

// stats adds the values of the control groups.
func (cg *group) stats(st *sandbox.Stats) {
	read := func(dir string, names ...string) *int64 {
		if dir == "" {
			return nil
		}
		for _, n := range names {
			b, err := os.ReadFile(filepath.Join(dir, n))
			if err != nil {
				continue
			}
			if v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
				return &v
			}
		}
		return nil
	}
	st.Memory = read(cg.mem, "memory.usage_in_bytes", "memory.current")
	st.MaxMemory = read(cg.mem, "memory.max_usage_in_bytes", "memory.peak")
	if cg.oom != nil {
		n := cg.oomKills()
		st.OOMKills = &n
	}
	if cg.cpu == "" {
		return
	}
	b, err := os.ReadFile(filepath.Join(cg.cpu, "cpu.stat"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			continue
		}
		switch k {
		case "throttled_time": // v1: ns
			d := time.Duration(n)
			st.Throttled = &d
		case "throttled_usec":
			d := time.Duration(n) * time.Microsecond
			st.Throttled = &d
		case "usage_usec":
			d := time.Duration(n) * time.Microsecond
			st.CPU = &d
		}
	}
}
