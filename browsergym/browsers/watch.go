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

	"golang.org/x/sys/unix"
)

// watchInterval is the time between checks of the browsers.
const watchInterval = 2 * time.Second

// watch checks the browsers until the pool is closed.
func (p *Pool) watch() {
	t := time.NewTicker(watchInterval)
	defer t.Stop()
	var asked sync.WaitGroup // a browser that does not answer must not delay the others
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

// retireOld retires browsers that are old or use much memory, and ends unused ones.
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
			inst.retired = true // not counted as replaced
			inst.b.Conn.Close()
		}
	}
}

// slowCall is the time that a call to a page may take before the browser is asked to draw, too.
const slowCall = 2 * watchInterval

// probe kills a browser that does not answer. While a page does not answer and the browser has
// others, it must also draw, since the page may be waiting for what another one keeps busy.
func (inst *instance) probe() {
	defer inst.probing.Store(false)
	if !inst.probeWithin(inst.p.o.Hang, false) {
		return
	}
	inst.p.mu.Lock()
	shared := inst.inUse > 1
	inst.p.mu.Unlock()
	if shared && inst.b.Waiting(slowCall) {
		inst.probeWithin(inst.p.o.PageHang, true)
	}
}

// probeWithin kills a browser that does not answer in time, and reports whether it did answer.
func (inst *instance) probeWithin(limit time.Duration, draw bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	go func() { // Close of the pool must not wait for a browser that hangs
		select {
		case <-inst.p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := inst.b.Probe(ctx, draw)
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		inst.p.mu.Lock()
		inst.hung = limit
		inst.p.stats.Hung++
		inst.p.mu.Unlock()
		inst.b.Kill()
	}
	return err == nil
}

// checkMemory sums the memory of a browser's processes and kills renderers that exceed PageMemory.
// It kills the browser above twice Memory.
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
	if large { // storage of pages is in the browser's process; killing pages does not free it
		inst.b.Kill()
	}
}

// checkProcesses kills a browser that has lost an essential process. Without the zygote no page
// opens. Chromium restarts the network service, but that has lost the contexts' proxies.
func (inst *instance) checkProcesses(procs map[int][]int) {
	all := processTree(inst.b.PID(), procs)
	if !inst.hasNetworkService { // on a busy machine it may start after essentialLimit
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

// essentialLimit bounds the wait for the network service. It starts shortly after the browser has
// begun to answer, without an event.
const essentialLimit = 2 * time.Second

// waitEssential finds the essential processes of a new browser, and waits for the network service.
func (inst *instance) waitEssential(ctx context.Context) {
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		all := processTree(inst.b.PID(), processes())
		inst.essential = inst.networkServices(all)
		for _, pid := range all { // before there are pages, whose processes are also zygotes at first
			if hasArg(pid, "--type=zygote") {
				inst.essential = append(inst.essential, pid)
			}
		}
		if inst.hasNetworkService || ctx.Err() != nil || time.Since(begun) > essentialLimit {
			return
		}
	}
}

// networkServices finds the network service among the browser's processes.
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

// stat returns the fields of /proc/PID/stat after the name: state, parent, …; nil if there is no
// such process.
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

// processTree lists a process and its descendants.
func processTree(pid int, procs map[int][]int) []int {
	all := []int{pid}
	for i := 0; i < len(all) && i < 10_000; i++ {
		all = append(all, procs[all[i]]...)
	}
	return all
}

// groupLimit limits the time to wait for the last processes of a browser.
const groupLimit = 30 * time.Second

// waitGroup waits until the processes of a group that was killed have ended. On a busy machine, that
// may take long.
func waitGroup(group int) {
	limit := time.Now().Add(groupLimit)
	files, _ := os.ReadDir("/proc")
	for _, f := range files {
		pid, err := strconv.Atoi(f.Name())
		if err != nil {
			continue
		}
		if s := stat(pid); s == nil || s[2] != strconv.Itoa(group) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil { // it has ended
			continue
		}
		ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for err = unix.EINTR; err == unix.EINTR; {
			_, err = unix.Poll(ended, int(max(0, time.Until(limit)).Milliseconds()))
		}
		unix.Close(fd)
	}
}

// reap waits for orphans that became children of this process, as happens if it is process 1 of a
// container. (With namespaces there are none.)
func reap(pids []int) {
	for limit := time.Now().Add(5 * time.Second); len(pids) > 0 &&
		time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
		pids = slices.DeleteFunc(pids, func(pid int) bool {
			got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			return got == pid || err != nil && stat(pid) == nil
		})
	}
}

// residentMemory returns a process's resident memory: anonymous, and shared or of files.
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
