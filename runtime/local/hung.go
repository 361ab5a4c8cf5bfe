package local

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/runtime/executor"
)

// hung kills a box whose executor does not respond. It returns the states of the executor's threads
// from the kernel, and the stacks that it prints on SIGQUIT. If it prints nothing soon, it is
// killed.
func (b *box) hung(ctx context.Context) string {
	defer b.p.kill()
	if b.d.plain {
		killDescendants(b.p.pid)
	}
	var s strings.Builder
	s.WriteString(executor.Threads(b.p.pid))
	if b.sp == nil {
		s.WriteString("no stacks: another process has started this sandbox\n")
		return s.String()
	}
	select { // one at a time: if many hang at once, the last ones have no stacks
	case b.sp.asks <- struct{}{}:
	case <-ctx.Done():
		s.WriteString("no stacks: other executors hang too\n")
		return s.String()
	}
	defer func() { <-b.sp.asks }()
	errs := b.sp.errs
	from := errs.written()
	b.p.quit()
	select {
	case <-b.p.ended:
	case <-ctx.Done():
		s.WriteString("it did not end on SIGQUIT\n")
	}
	// Its output comes through a pipe of its spawner, perhaps a moment later.
	for n, tries := int64(-1), 0; n != errs.written() && tries < 10; tries++ {
		n = errs.written()
		time.Sleep(20 * time.Millisecond)
	}
	s.WriteString(errs.since(from))
	return s.String()
}

// killDescendants kills all that an executor without namespaces has started, if it cannot do that
// itself. As their subreaper, it is their ancestor until it ends.
func killDescendants(root int) {
	for range 100 {
		parents := map[int]int{}
		files, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			stat := string(b)
			if w := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]); len(w) > 1 && w[0] != "Z" {
				parents[pid], _ = strconv.Atoi(w[1])
			}
		}
		var found []int
		for pid := range parents {
			for p, n := parents[pid], 0; p > 1 && n < 1000; p, n = parents[p], n+1 {
				if p == root {
					found = append(found, pid)
					break
				}
			}
		}
		if len(found) == 0 {
			return
		}
		slices.Sort(found)
		for _, pid := range found {
			unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}
