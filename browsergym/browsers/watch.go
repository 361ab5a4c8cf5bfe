package browsers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// watchEvery is how often browsers are looked at.
const watchEvery = 2 * time.Second

// watch looks after the browsers until the pool is closed.
func (p *Pool) watch() {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	var asked sync.WaitGroup // one that waits for its answer holds up no other
	defer asked.Wait()
	for {
		select {
		case <-t.C:
		case <-p.done:
			return
		}
		p.mu.Lock()
		units := append([]*unit(nil), p.units...)
		p.mu.Unlock()
		if len(units) == 0 {
			continue
		}
		procs := processes()
		for _, u := range units {
			if u.asking.CompareAndSwap(false, true) {
				asked.Go(u.ask)
			}
			u.weigh(procs)
			u.count(procs)
			u.b.CancelUntold()
			u.b.EndSilent(p.o.PageHang)
		}
		p.sort()
	}
}

// sort retires browsers that are old or large, and ends those without use.
func (p *Pool) sort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	free := 0
	for _, u := range p.units {
		if now.Sub(u.born) > p.o.MaxAge || u.memory > p.o.Memory {
			p.retire(u)
		}
		if !u.retired {
			free++
		}
	}
	for _, u := range p.units {
		if u.taken == 0 && now.Sub(u.idle) > p.o.Idle {
			u.dropSpare()
		}
		switch {
		case u.taken > 0:
		case u.retired:
			u.b.Conn.Close()
		case free > 1 && now.Sub(u.idle) > p.o.Idle:
			free--
			u.retired = true // no fault of its own
			u.b.Conn.Close()
		}
	}
}

// ask ends a browser that does not answer.
func (u *unit) ask() {
	defer u.asking.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), u.p.o.Hang)
	defer cancel()
	go func() { // not held up by what hangs
		select {
		case <-u.p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := u.b.Ask(ctx)
	if err == nil || ctx.Err() != context.DeadlineExceeded {
		return
	}
	u.p.mu.Lock()
	u.hung = true
	u.p.count.Hung++
	u.p.mu.Unlock()
	u.b.Kill()
}

// weigh sums the memory of a browser's processes, and ends those of pages that have taken too much.
func (u *unit) weigh(procs map[int][]int) {
	var total, shared int64
	for _, pid := range family(u.b.PID(), procs) {
		own, both := memoryOf(pid)
		total += own
		shared = max(shared, both)
		if own > u.p.o.PageMemory && isRenderer(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			u.p.mu.Lock()
			u.p.count.PagesEnded++
			u.p.mu.Unlock()
			u.p.o.Say(fmt.Sprintf("a page's process had %d MiB and was ended", own>>20))
		}
	}
	u.p.mu.Lock()
	u.memory = total + shared
	large := u.memory > 2*u.p.o.Memory && !u.large
	u.large = u.large || large
	u.p.mu.Unlock()
	if large { // what pages store is in the browser's own process, and no page's end gives it back
		u.b.Kill()
	}
}

// count ends a browser that has lost one of its vital processes. Without that from which its pages'
// processes come, no page would open any more; that which does its networking is started again, but
// knows no context's proxy.
func (u *unit) count(procs map[int][]int) {
	all := family(u.b.PID(), procs)
	if !u.networked { // on a busy machine it may come later than it was waited for
		u.vital = append(u.vital, u.networking(all)...)
	}
	for _, pid := range u.vital {
		if s := stat(pid); !slices.Contains(all, pid) || s == nil || s[0] == "Z" {
			u.p.mu.Lock()
			u.broken = true
			u.p.mu.Unlock()
			u.b.Kill()
			return
		}
	}
}

// vitalsLimit is how long a browser's networking is waited for. It comes a moment after the browser
// has begun to answer, and nothing tells when.
const vitalsLimit = 2 * time.Second

// waitVitals waits for the processes that a browser which has just started cannot do without.
func (u *unit) waitVitals(ctx context.Context) {
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		all := family(u.b.PID(), processes())
		u.vital = u.networking(all)
		for _, pid := range all { // now, while there are no pages: theirs bear that name, too, for a moment
			if isKind(pid, "--type=zygote") {
				u.vital = append(u.vital, pid)
			}
		}
		if u.networked || ctx.Err() != nil || time.Since(begun) > vitalsLimit {
			return
		}
	}
}

// networking finds the process that does a browser's networking among all of its own.
func (u *unit) networking(all []int) (pids []int) {
	for _, pid := range all {
		if isKind(pid, "network.mojom.NetworkService") {
			pids, u.networked = append(pids, pid), true
		}
	}
	return pids
}

// processes lists the children of each process.
func processes() map[int][]int {
	all := map[int][]int{}
	files, _ := os.ReadDir("/proc")
	for _, f := range files {
		pid, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		if s := stat(pid); s != nil {
			if parent, err := strconv.Atoi(s[1]); err == nil {
				all[parent] = append(all[parent], pid)
			}
		}
	}
	return all
}

// stat is what the kernel tells of a process after its name: state, parent …; nil: there is none.
func stat(pid int) []string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 {
		return nil
	}
	return f
}

// family is a process with all that came of it.
func family(pid int, procs map[int][]int) []int {
	all := []int{pid}
	for i := 0; i < len(all) && i < 10_000; i++ {
		all = append(all, procs[all[i]]...)
	}
	return all
}

// reap takes leave of orphans that have become ours, as those of process 1 of a container do. (With
// namespaces there are none.)
func reap(pids []int) {
	for limit := time.Now().Add(5 * time.Second); len(pids) > 0 &&
		time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		pids = slices.DeleteFunc(pids, func(pid int) bool {
			got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			return got == pid || err != nil && stat(pid) == nil
		})
	}
}

// memoryOf is how much of a process's memory is in RAM: its own, and what it has of files and may
// share.
func memoryOf(pid int) (own, shared int64) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0, 0
	}
	f := strings.Fields(string(b))
	if len(f) < 3 {
		return 0, 0
	}
	resident, _ := strconv.ParseInt(f[1], 10, 64)
	both, _ := strconv.ParseInt(f[2], 10, 64)
	page := int64(os.Getpagesize())
	return (resident - both) * page, both * page
}

func isRenderer(pid int) bool { return isKind(pid, "--type=renderer") }

func isKind(pid int, kind string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.Contains(b, []byte(kind))
}
