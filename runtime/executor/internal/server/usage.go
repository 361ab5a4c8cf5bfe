package server

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// A usage reads what the sandbox uses from the control groups that its engine shows inside, at the
// root of the mount, since a container has its own view of them.
type usage struct {
	v2   bool
	mu   sync.Mutex
	oom  int // file with the count of OOM kills; it is read after each command
	last int64
}

const (
	groupsAt = "/sys/fs/cgroup/"

	cgroup1Magic = 0x27e0eb
	cgroup2Magic = 0x63677270
)

// findUsage finds out whether the control groups are visible, and how.
func findUsage() *usage {
	var fs unix.Statfs_t
	u := &usage{oom: -1, v2: unix.Statfs(groupsAt, &fs) == nil && fs.Type == cgroup2Magic}
	name := "memory/memory.oom_control"
	if u.v2 {
		name = "memory.events"
	}
	fd, err := highFD(unix.Open(groupsAt+name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0))
	if err != nil {
		return u
	}
	if !isGroup(fd) {
		unix.Close(fd)
		return u
	}
	u.oom = fd
	u.last = u.kills()
	return u
}

// isGroup reports whether the file is really the kernel's: an image can have one of the same name.
func isGroup(fd int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(fd, &fs) == nil && (fs.Type == cgroup1Magic || fs.Type == cgroup2Magic)
}

// kills returns the number of OOM kills by the sandbox's own limit, or -1 if it is not known.
func (u *usage) kills() int64 {
	if u == nil || u.oom < 0 {
		return -1
	}
	var b [512]byte
	n, err := syscall.Pread(u.oom, b[:], 0)
	if err != nil {
		return -1
	}
	return field(b[:n], "oom_kill")
}

// killed reports whether there was such a kill since the last call.
func (u *usage) killed() bool {
	if u == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.kills()
	more := n > u.last
	u.last = n
	return more
}

// field returns a number by its name, from lines of names and numbers, or -1.
func field(b []byte, name string) int64 {
	for line := range bytes.Lines(b) {
		k, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if ok && string(k) == name {
			if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// number reads the first of these files that belongs to a control group and contains a number, or
// returns -1.
func number(names ...string) int64 {
	for _, n := range names {
		if b := groupFile(n); b != nil {
			if v, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64); err == nil {
				return v
			}
		}
	}
	return -1
}

func groupFile(name string) []byte {
	f, err := os.OpenFile(groupsAt+name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if !isGroup(int(f.Fd())) {
		return nil
	}
	b := make([]byte, 4096)
	n, _ := f.Read(b)
	return b[:n]
}

// read fills in the values of the control groups.
func (u *usage) read(st *execproto.Stats) {
	if u == nil {
		return
	}
	st.OOMKills = u.kills()
	scale := func(n, unit int64) int64 {
		if n < 0 {
			return -1
		}
		return n * unit
	}
	if u.v2 {
		st.Memory, st.MaxMemory = number("memory.current"), number("memory.peak")
		cpu := groupFile("cpu.stat")
		st.Throttled = scale(field(cpu, "throttled_usec"), 1000)
		if n := field(cpu, "usage_usec"); n >= 0 {
			st.CPU = n * 1000
		}
		return
	}
	st.Memory, st.MaxMemory = number("memory/memory.usage_in_bytes"), number("memory/memory.max_usage_in_bytes")
	for _, dir := range []string{"cpu/", "cpu,cpuacct/"} {
		if n := field(groupFile(dir+"cpu.stat"), "throttled_time"); n >= 0 {
			st.Throttled = n
			break
		}
	}
	if n := number("cpuacct/cpuacct.usage", "cpu,cpuacct/cpuacct.usage"); n >= 0 {
		st.CPU = n
	}
}

// stats returns what is known from inside.
func (sv *server) stats() (execproto.Enc, error) {
	st := execproto.Stats{Disk: -1, Memory: -1, MaxMemory: -1, OOMKills: -1, CPU: -1, Throttled: -1}
	ps := processTable()
	for _, t := range sv.commands(true) {
		st.Pids += int64(len(descendants(ps, t.pid)))
	}
	var fs unix.Statfs_t
	if sv.init && !sv.container && unix.Statfs("/", &fs) == nil { // a container's root is on a disk that it shares
		st.Disk = int64(fs.Blocks-fs.Bfree) * int64(fs.Bsize)
	}
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &ru) == nil {
		st.CPU = ru.Utime.Nano() + ru.Stime.Nano()
	}
	sv.usage.read(&st)
	e := execproto.OK()
	st.Encode(&e)
	return e, nil
}
