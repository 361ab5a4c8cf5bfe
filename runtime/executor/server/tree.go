package server

import (
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A proc is one line of the process table.
type proc struct {
	pid, ppid int
	zombie    bool
}

// procs reads the process table. Threads are left out.
func procs() []proc {
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
	syscall.Close(fd)
	if err != nil {
		return proc{}, false
	}
	b := buf[:n]
	// The name, in parentheses, is the process's own choice: what counts is the last closing one.
	i := len(b) - 1
	for i >= 0 && b[i] != ')' {
		i--
	}
	if i < 0 || i+4 >= len(b) {
		return proc{}, false
	}
	p := proc{pid: pid, zombie: b[i+2] == 'Z' || b[i+2] == 'X'}
	for j := i + 4; j < len(b) && b[j] >= '0' && b[j] <= '9'; j++ {
		p.ppid = p.ppid*10 + int(b[j]-'0')
	}
	return p, true
}

// below returns the living processes of ps that descend from root, root left out.
func below(ps []proc, root int) []int {
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
			todo = append(todo, c) // a zombie leader may have children through its threads
		}
	}
	return out
}

// signalBelow sends sig to pid if it still is a descendant of root. A number may have come to somebody else since the
// table was read; the descriptor pins it while we look again.
func signalBelow(pid, root int, sig syscall.Signal) {
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

// killTree ends all that belongs to the supervisor with this pid, until gone is closed (the supervisor ends when it has no
// child left) or the time is over. Everything is stopped before anything is killed: what is stopped cannot fork.
func killTree(root int, gone <-chan struct{}, limit time.Duration) bool {
	end := time.Now().Add(limit)
	empty := 0
	stopped := map[int]bool{}
	for time.Now().Before(end) {
		fresh := false
		ps := below(procs(), root)
		for _, pid := range ps {
			if !stopped[pid] {
				stopped[pid], fresh = true, true
				signalBelow(pid, root, syscall.SIGSTOP)
			}
		}
		if fresh && len(stopped) < 1<<16 {
			continue
		}
		for _, pid := range ps {
			signalBelow(pid, root, syscall.SIGKILL)
		}
		clear(stopped)
		if len(ps) == 0 {
			// Only the supervisor is left, and does not end: it was stopped by somebody.
			switch empty++; {
			case empty > 50:
				syscall.Kill(root, syscall.SIGKILL)
			case empty > 5:
				syscall.Kill(root, syscall.SIGCONT)
			}
		}
		select {
		case <-gone:
			return true
		case <-time.After(2 * time.Millisecond):
		}
	}
	return false
}
