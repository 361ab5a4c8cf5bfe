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

// watchInterval is how often browsers are looked at.
const watchInterval = 2 * time.Second

// watch looks after the browsers until the pool is closed.
func (p *Pool) watch() {
	t := time.NewTicker(watchInterval)
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
		units := append([]*instance(nil), p.instances...)
		p.mu.Unlock()
		if len(units) == 0 {
			continue
		}
		procs := processes()
		for _, inst := range units {
			if inst.probing.CompareAndSwap(false, true) {
				asked.Go(inst.probe)
			}
			inst.checkMemory(procs)
			inst.checkProcesses(procs)
			inst.b.CancelUnreported()
			inst.b.EndUnresponsive(p.o.PageHang)
		}
		p.retireOld()
	}
}

// retireOld retires browsers that are old or large, and ends those without use.
func (p *Pool) retireOld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	free := 0
	for _, inst := range p.instances {
		if now.Sub(inst.started) > p.o.MaxAge || inst.memory > p.o.Memory {
			p.retire(inst)
		}
		if !inst.retired {
			free++
		}
	}
	for _, inst := range p.instances {
		if inst.inUse == 0 && now.Sub(inst.idleSince) > p.o.Idle {
			inst.dropPrewarmed()
		}
		switch {
		case inst.inUse > 0:
		case inst.retired:
			inst.b.Conn.Close()
		case free > 1 && now.Sub(inst.idleSince) > p.o.Idle:
			free--
			inst.retired = true // no fault of its own
			inst.b.Conn.Close()
		}
	}
}

// probe ends a browser that does not answer.
func (inst *instance) probe() {
	defer inst.probing.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), inst.p.o.Hang)
	defer cancel()
	go func() { // not held up by what hangs
		select {
		case <-inst.p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := inst.b.Probe(ctx)
	if err == nil || ctx.Err() != context.DeadlineExceeded {
		return
	}
	inst.p.mu.Lock()
	inst.hung = true
	inst.p.stats.Hung++
	inst.p.mu.Unlock()
	inst.b.Kill()
}

// checkMemory sums the memory of a browser's processes, and ends those of pages that have taken too much.
func (inst *instance) checkMemory(procs map[int][]int) {
	var total, shared int64
	for _, pid := range processTree(inst.b.PID(), procs) {
		own, both := residentMemory(pid)
		total += own
		shared = max(shared, both)
		if own > inst.p.o.PageMemory && isRenderer(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
			inst.p.mu.Lock()
			inst.p.stats.PagesEnded++
			inst.p.mu.Unlock()
			inst.p.o.Say(fmt.Sprintf("a page's process had %d MiB and was ended", own>>20))
		}
	}
	inst.p.mu.Lock()
	inst.memory = total + shared
	large := inst.memory > 2*inst.p.o.Memory && !inst.overMemory
	inst.overMemory = inst.overMemory || large
	inst.p.mu.Unlock()
	if large { // what pages store is in the browser's own process, and no page's end gives it back
		inst.b.Kill()
	}
}

// checkProcesses ends a browser that has lost one of its vital processes. Without that from which its pages'
// processes come, no page would open any more; that which does its networking is started again, but
// knows no context's proxy.
func (inst *instance) checkProcesses(procs map[int][]int) {
	all := processTree(inst.b.PID(), procs)
	if !inst.hasNetworkService { // on a busy machine it may come later than it was waited for
		inst.essential = append(inst.essential, inst.networkServices(all)...)
	}
	for _, pid := range inst.essential {
		if s := stat(pid); !slices.Contains(all, pid) || s == nil || s[0] == "Z" {
			inst.p.mu.Lock()
			inst.broken = true
			inst.p.mu.Unlock()
			inst.b.Kill()
			return
		}
	}
}

// essentialLimit is how long a browser's networking is waited for. It comes a moment after the browser
// has begun to answer, and nothing tells when.
const essentialLimit = 2 * time.Second

// waitEssential waits for the processes that a browser which has just started cannot do without.
func (inst *instance) waitEssential(ctx context.Context) {
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		all := processTree(inst.b.PID(), processes())
		inst.essential = inst.networkServices(all)
		for _, pid := range all { // now, while there are no pages: theirs bear that name, too, for a moment
			if hasArg(pid, "--type=zygote") {
				inst.essential = append(inst.essential, pid)
			}
		}
		if inst.hasNetworkService || ctx.Err() != nil || time.Since(begun) > essentialLimit {
			return
		}
	}
}

// networkServices finds the process that does a browser's networking among all of its own.
func (inst *instance) networkServices(all []int) (pids []int) {
	for _, pid := range all {
		if hasArg(pid, "network.mojom.NetworkService") {
			pids, inst.hasNetworkService = append(pids, pid), true
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

// processTree is a process with all that came of it.
func processTree(pid int, procs map[int][]int) []int {
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

// residentMemory is how much of a process's memory is in RAM: its own, and what it has of files and may
// share.
func residentMemory(pid int) (own, shared int64) {
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

func isRenderer(pid int) bool { return hasArg(pid, "--type=renderer") }

func hasArg(pid int, kind string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && bytes.Contains(b, []byte(kind))
}
