package server

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// killOrphans kills processes whose supervisor was killed and that are now our children. It returns
// when they are reaped, since until then they count for the limit of processes.
func (sv *server) killOrphans() {
	self := os.Getpid()
	for range 1000 {
		sv.mu.Lock()
		var strays []int
		ps := processTable()
		for _, p := range ps {
			if p.ppid == self && sv.trees[p.pid] == nil {
				strays = append(strays, p.pid)
				strays = append(strays, descendants(ps, p.pid)...)
			}
		}
		sv.mu.Unlock()
		if len(strays) == 0 {
			return
		}
		for _, pid := range strays {
			signalDescendant(pid, self, syscall.SIGKILL)
		}
		for { // reap the dead ones, so that the next pass does not find zombies
			sv.mu.Lock()
			n := 0
			for _, pid := range strays {
				if sv.trees[pid] == nil {
					if got, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); got > 0 {
						n++
					}
				}
			}
			sv.mu.Unlock()
			if n == 0 {
				break
			}
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// killTree kills the processes of one command.
func (sv *server) killTree(t *tree, limit time.Duration) bool {
	if sv.init {
		sv.mu.Lock()
		alone := len(sv.trees) == 1 && sv.trees[t.pid] != nil
		if alone {
			// No other command is running, so kill everything with one call, which no fork can
			// outrun.
			syscall.Kill(-1, syscall.SIGKILL)
		}
		sv.mu.Unlock()
	}
	return sv.killTrees([]*tree{t}, limit)
}

var errAlive = errors.New("some processes do not die")

// killProcesses kills all commands and, if entry is set, the ENTRYPOINT, with all their
// descendants. It returns when no such process is left.
func (sv *server) killProcesses(entry bool) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if sv.init && sv.killAtOnce(entry) {
			if len(sv.commands(false)) == 0 && onlyProcess() {
				return nil
			}
			time.Sleep(200 * time.Microsecond)
			continue
		}
		ts := sv.commands(entry)
		if len(ts) == 0 {
			sv.killOrphans()
			return nil
		}
		if !sv.killTrees(ts, time.Until(end)) {
			break
		}
	}
	return errAlive
}

// killAtOnce kills all processes with one call, which no fork can outrun. If butEntry is set, it
// does so only if there is no ENTRYPOINT; the lock prevents that one is started meanwhile.
func (sv *server) killAtOnce(butEntry bool) bool {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for _, t := range sv.trees {
		if t.entry && butEntry {
			return false
		}
	}
	syscall.Kill(-1, syscall.SIGKILL)
	return true
}

// commands returns the trees that are running, without the ENTRYPOINT's if butEntry is set.
func (sv *server) commands(butEntry bool) (ts []*tree) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for _, t := range sv.trees {
		if !t.entry || !butEntry {
			ts = append(ts, t)
		}
	}
	return ts
}

// Limits of stopping processes one after the other.
const (
	stopLimit = 200 * time.Millisecond
	crowd     = 64
)

// killTrees kills all processes of these supervisors until the supervisors are gone (a supervisor
// ends when it has no child left) or the time is over. All processes are stopped before any is
// killed, because a stopped process cannot fork.
func (sv *server) killTrees(ts []*tree, limit time.Duration) bool {
	begun := time.Now()
	empty := map[*tree]int{}
	stopped := map[int]bool{}
	for time.Since(begun) < limit {
		if ts = notEnded(ts); len(ts) == 0 {
			return true
		}
		if sv.init && (time.Since(begun) > stopLimit || manyProcesses()) {
			stopAndKill(ts)
			waitGone(ts, 50*time.Millisecond)
			continue
		}
		fresh := false
		ps := processTable()
		of := make([][]int, len(ts))
		for i, t := range ts {
			of[i] = descendants(ps, t.pid)
			for _, pid := range of[i] {
				if !stopped[pid] {
					stopped[pid], fresh = true, true
					signalDescendant(pid, t.pid, syscall.SIGSTOP)
				}
			}
		}
		if fresh && len(stopped) < 1<<16 {
			continue
		}
		clear(stopped)
		for i, t := range ts {
			for _, pid := range of[i] {
				signalDescendant(pid, t.pid, syscall.SIGKILL)
			}
			if len(of[i]) == 0 {
				// Only the supervisor is left and does not end: it was stopped by another process.
				switch empty[t]++; {
				case empty[t] > 50:
					syscall.Kill(t.pid, syscall.SIGKILL)
				case empty[t] > 5:
					syscall.Kill(t.pid, syscall.SIGCONT)
				}
			}
		}
		waitGone(ts, 2*time.Millisecond)
	}
	return len(notEnded(ts)) == 0
}

// manyProcesses reports whether there are very many processes. It only lists the names in /proc:
// among hundreds of busy processes, we get little CPU time.
func manyProcesses() bool {
	d, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	n := 0
	for _, name := range names {
		if name[0] >= '1' && name[0] <= '9' {
			n++
		}
	}
	return n > crowd
}

// stopAndKill stops all processes of the sandbox with one call, so that nothing competes for the
// CPU while we find the processes to be killed, and continues the rest afterwards. It is for fork
// bombs, which leave too little CPU time to stop hundreds of processes one by one. A process that
// waits for a stopped child (an interactive shell) may notice it.
func stopAndKill(ts []*tree) {
	syscall.Kill(-1, syscall.SIGSTOP)
	ps := processTable()
	for _, t := range ts {
		for _, pid := range descendants(ps, t.pid) {
			syscall.Kill(pid, syscall.SIGKILL) // all processes that could free its PID are stopped
		}
	}
	syscall.Kill(-1, syscall.SIGCONT)
}

// waitGone waits until all supervisors have ended, for d at most.
func waitGone(ts []*tree, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for _, t := range ts {
		select {
		case <-t.gone:
		case <-timer.C:
			return
		}
	}
}

// notEnded returns the trees that have not ended. The PIDs of others may have been reused.
func notEnded(ts []*tree) (left []*tree) {
	for _, t := range ts {
		select {
		case <-t.gone:
		default:
			left = append(left, t)
		}
	}
	return left
}
