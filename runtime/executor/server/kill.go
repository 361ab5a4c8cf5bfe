package server

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// killStrays kills what fell to us because its supervisor was killed.
func (sv *server) killStrays() {
	self := os.Getpid()
	for range 1000 {
		sv.mu.Lock()
		var strays []int
		ps := procs()
		for _, p := range ps {
			if p.ppid == self && !p.zombie && sv.trees[p.pid] == nil {
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
	return killTree(t.pid, t.gone, limit)
}

var errAlive = errors.New("some processes do not die")

// killAll ends everything that was ever started, but ENTRYPOINT with all that came of it, and returns when nothing of it is
// left.
func (sv *server) killAll() error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if sv.init && sv.killEverybody() {
			if ts, _ := sv.commands(); len(ts) == 0 && len(below(procs(), 1)) == 0 {
				return nil
			}
			time.Sleep(200 * time.Microsecond)
			continue
		}
		ts, _ := sv.commands()
		if len(ts) == 0 {
			sv.killStrays()
			return nil
		}
		if !killTrees(ts, end) {
			break
		}
	}
	return errAlive
}

// killEverybody ends all processes in one call, which no fork can outrun, unless there is an ENTRYPOINT to be spared. The lock
// keeps one from being started meanwhile.
func (sv *server) killEverybody() bool {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for _, t := range sv.trees {
		if t.entry {
			return false
		}
	}
	syscall.Kill(-1, syscall.SIGKILL)
	return true
}

// commands are the trees of all but ENTRYPOINT, and whether that runs.
func (sv *server) commands() (ts []*tree, entry bool) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	for _, t := range sv.trees {
		if t.entry {
			entry = true
		} else {
			ts = append(ts, t)
		}
	}
	return ts, entry
}

func killTrees(ts []*tree, end time.Time) bool {
	var wg sync.WaitGroup
	ok := make([]bool, len(ts))
	for i, t := range ts {
		wg.Go(func() { ok[i] = killTree(t.pid, t.gone, time.Until(end)) })
	}
	wg.Wait()
	for _, ok := range ok {
		if !ok {
			return false
		}
	}
	return true
}
