package server

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A proc is one process of the process table.
type proc struct {
	pid, ppid int
	zombie    bool
}

// processTable reads the process table, without threads.
func processTable() []proc {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var ps []proc
	buf := make([]byte, 1024)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProc(pid, buf); ok {
			ps = append(ps, p)
		}
	}
	return ps
}

func readProc(pid int, buf []byte) (proc, bool) {
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid)+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return proc{}, false
	}
	n, err := syscall.Read(fd, buf)
	for err == syscall.EINTR {
		n, err = syscall.Read(fd, buf)
	}
	syscall.Close(fd)
	if err != nil {
		return proc{}, false
	}
	b := buf[:n]
	// The name in parentheses is chosen by the process, so look for the last closing parenthesis.
	i := len(b) - 1
	for i >= 0 && b[i] != ')' {
		i--
	}
	if i < 0 || i+4 >= len(b) {
		return proc{}, false
	}
	p := proc{pid: pid, ppid: statField(b[i+2:], 1)}
	if b[i+2] == 'Z' || b[i+2] == 'X' {
		// A process whose first thread has ended looks dead while its other threads run on.
		p.zombie = statField(b[i+2:], 17) <= 1
	}
	return p, true
}

// statField returns the nth number after a process's state, which is field 0.
func statField(b []byte, n int) (v int) {
	for ; n > 0; n-- {
		i := bytes.IndexByte(b, ' ')
		if i < 0 {
			return 0
		}
		b = b[i+1:]
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		v = v*10 + int(c-'0')
	}
	return v
}

// descendants returns the live descendants of root in ps, without root.
func descendants(ps []proc, root int) []int {
	children := make(map[int][]int, len(ps))
	dead := map[int]bool{}
	for _, p := range ps {
		children[p.ppid] = append(children[p.ppid], p.pid)
		if p.zombie {
			dead[p.pid] = true
		}
	}
	var out []int
	todo := []int{root}
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		for _, c := range children[p] {
			if !dead[c] {
				out = append(out, c)
			}
			todo = append(todo, c) // a zombie may have children through its threads
		}
	}
	return out
}

// onlyProcess reports whether there is no other process, not even a zombie, which counts for the
// limit of processes too. Unlike descendants, it does not depend on parents, which may end while
// the table is being read.
func onlyProcess() bool {
	self := os.Getpid()
	for _, p := range processTable() {
		if p.pid != self {
			return false
		}
	}
	return true
}

// signalDescendant sends sig to pid if it still is a descendant of root. The PID may have been
// reused since the table was read; a pidfd holds it while we check again.
func signalDescendant(pid, root int, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if err == unix.ENOSYS || err == unix.EINVAL {
			syscall.Kill(pid, sig)
		}
		return
	}
	defer unix.Close(fd)
	buf := make([]byte, 1024)
	for at, n := pid, 0; n < 1000; n++ {
		p, ok := readProc(at, buf)
		if !ok || p.ppid <= 0 {
			return
		}
		if p.ppid == root {
			unix.PidfdSendSignal(fd, sig, nil, 0)
			return
		}
		at = p.ppid
	}
}
