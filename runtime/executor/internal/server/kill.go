package server

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// killStrays kills what fell to us because its supervisor was killed, and returns when it is
// reaped: until then it takes room among the machine's processes.
func (sv *server) killStrays() {
	self := os.Getpid()
	for range 1000 {
		sv.mu.Lock()
		var strays []int
		ps := procs()
		for _, p := range ps {
			if p.ppid == self && sv.trees[p.pid] == nil {
				strays = append(strays, p.pid)
				strays = append(strays, below(ps, p.pid)...)
			}
		}
		sv.mu.Unlock()
		if len(strays) == 0 {
			return
		}
		for _, pid := range strays {
			signalBelow(pid, self, syscall.SIGKILL)
		}
		for { // reap what is dead of them, so that the next look is not of zombies
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

// killTree ends one command with all that came of it.
func (sv *server) killTree(t *tree, limit time.Duration) bool {
	if sv.init {
		sv.mu.Lock()
		alone := len(sv.trees) == 1 && sv.trees[t.pid] != nil
		if alone {
			// Nothing else runs here: one call, which no fork can outrun, ends it all.
			syscall.Kill(-1, syscall.SIGKILL)
		}
		sv.mu.Unlock()
	}
	return sv.killTrees([]*tree{t}, limit)
}

var errAlive = errors.New("some processes do not die")

// killBut ends everything that was ever started, or everything but ENTRYPOINT with all that came of
// it, and returns when nothing of it is left.
func (sv *server) killBut(entry bool) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if sv.init && sv.killEverybody(entry) {
			if len(sv.commands(false)) == 0 && alone() {
				return nil
			}
			time.Sleep(200 * time.Microsecond)
			continue
		}
		ts := sv.commands(entry)
		if len(ts) == 0 {
			sv.killStrays()
			return nil
		}
		if !sv.killTrees(ts, time.Until(end)) {
			break
		}
	}
	return errAlive
}

// killEverybody ends all processes in one call, which no fork can outrun, unless there is an
// ENTRYPOINT to be spared. The lock keeps one from being started meanwhile.
func (sv *server) killEverybody(butEntry bool) bool {
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

// commands are the trees that run, without ENTRYPOINT's if that is asked.
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

// Processes are stopped one after the other for so long, and where there are so many at the most.
const (
	stopLimit = 200 * time.Millisecond
	crowd     = 64
)

// killTrees ends all that belongs to these supervisors, until they are gone (a supervisor ends when
// it has no child left) or the time is over. Everything is stopped before anything is killed: what
// is stopped cannot fork.
func (sv *server) killTrees(ts []*tree, limit time.Duration) bool {
	begun := time.Now()
	empty := map[*tree]int{}
	stopped := map[int]bool{}
	for time.Since(begun) < limit {
		if ts = living(ts); len(ts) == 0 {
			return true
		}
		if sv.init && (time.Since(begun) > stopLimit || crowded()) {
			killStill(ts)
			waitGone(ts, 50*time.Millisecond)
			continue
		}
		fresh := false
		ps := procs()
		of := make([][]int, len(ts))
		for i, t := range ts {
			of[i] = below(ps, t.pid)
			for _, pid := range of[i] {
				if !stopped[pid] {
					stopped[pid], fresh = true, true
					signalBelow(pid, t.pid, syscall.SIGSTOP)
				}
			}
		}
		if fresh && len(stopped) < 1<<16 {
			continue
		}
		clear(stopped)
		for i, t := range ts {
			for _, pid := range of[i] {
				signalBelow(pid, t.pid, syscall.SIGKILL)
			}
			if len(of[i]) == 0 {
				// Only the supervisor is left, and does not end: it was stopped by somebody.
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
	return len(living(ts)) == 0
}

// crowded looks at the names in /proc only: among hundreds of processes that want the processor,
// each look costs us one of our few turns.
func crowded() bool {
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

// killStill stops the whole machine in one call, so that nothing takes the processor from us while
// we look for what has to die, and lets the rest go on. It is for bombs: hundreds of processes
// leave us too few turns to stop them one by one. Whoever waits for a child that is stopped (an
// interactive shell) may notice.
func killStill(ts []*tree) {
	syscall.Kill(-1, syscall.SIGSTOP)
	ps := procs()
	for _, t := range ts {
		for _, pid := range below(ps, t.pid) {
			syscall.Kill(pid, syscall.SIGKILL) // all that could free its number is stopped
		}
	}
	syscall.Kill(-1, syscall.SIGCONT)
}

// waitGone waits for the end of all supervisors, but not for longer than d.
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

// living leaves out the trees that are gone: their numbers may be somebody else's by now.
func living(ts []*tree) (left []*tree) {
	for _, t := range ts {
		select {
		case <-t.gone:
		default:
			left = append(left, t)
		}
	}
	return left
}
