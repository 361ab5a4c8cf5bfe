package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// sandbox measures the local driver in this process.
func (b *bench) sandbox() error {
	ctx := context.Background()
	d := local.New()
	defer d.Close()
	if err := d.Probe(ctx); err != nil {
		return err
	}
	spec := sandbox.Spec{Owner: sandbox.Owner{Run: "bench", PID: os.Getpid()}, Dir: "/workspace"}
	do := func(sb sandbox.Sandbox) error {
		exit, err := sb.Exec(ctx, sandbox.Command{Args: []string{"/bin/true"}})
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("/bin/true exited with code %d", exit.Code)
		}
		return err
	}
	var starts, commands, removals []float64
	for range 50 {
		t := time.Now()
		sb, err := d.Create(ctx, spec)
		if err != nil {
			return err
		}
		if err := do(sb); err != nil {
			return err
		}
		starts = append(starts, time.Since(t).Seconds())
		c, err := median(11, func() error { return do(sb) })
		if err != nil {
			return err
		}
		commands = append(commands, c)
		t = time.Now()
		if err := sb.Close(); err != nil {
			return err
		}
		removals = append(removals, time.Since(t).Seconds())
	}
	b.add("local sandbox: start to the end of its first command", mid(starts), 25e-3, b.floors.exec, ms, "exec")
	b.add("local sandbox: a command", mid(commands), 3e-3, b.floors.exec, ms, "exec")
	b.add("local sandbox: removal", mid(removals), 10e-3, b.floors.exec, ms, "exec")

	const some, many = 200, 500
	took, size, err := b.together(d, spec, some, do)
	if err != nil {
		return err
	}
	b.note(fmt.Sprintf("%d local sandboxes at once, each with a command", some),
		fmt.Sprintf("%s, %s a sandbox", ms(took), ms(took/some)))
	b.add("memory of a local sandbox without its processes", size/some, 6e6, 0, mb, "")
	if took, size, err = b.together(d, spec, many, do); err != nil {
		return err
	}
	b.add(fmt.Sprintf("%d local sandboxes alive at once, a sandbox", many), took/many, 25e-3, b.floors.exec, ms, "exec")
	b.note("— their memory", mb(size))
	return nil
}

// together creates n sandboxes, runs a command in each, and closes them when all exist. It returns the
// time until then, and the memory of all.
func (b *bench) together(d sandbox.Driver, spec sandbox.Spec, n int, do func(sandbox.Sandbox) error) (took,
	memory float64, err error) {
	var (
		mu   sync.Mutex
		all  []sandbox.Sandbox
		errs []error
		wg   sync.WaitGroup
	)
	slots := make(chan struct{}, 4)
	t := time.Now()
	for range n {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			sb, err := d.Create(context.Background(), spec)
			if err == nil {
				err = do(sb)
			}
			mu.Lock()
			defer mu.Unlock()
			if sb != nil {
				all = append(all, sb)
			}
			if err != nil {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	took = time.Since(t).Seconds()
	memory = proportional(os.Getpid())
	for _, sb := range all { // they still work
		if err := do(sb); err != nil {
			errs = append(errs, err)
		}
	}
	for _, sb := range all {
		wg.Go(func() { sb.Close() })
	}
	wg.Wait()
	if len(errs) > 0 {
		return 0, 0, fmt.Errorf("%d of %d sandboxes at once: %w", len(errs), n, errs[0])
	}
	return took, memory, nil
}

// proportional returns the total proportional set size of a process and its descendants.
func proportional(root int) float64 {
	parents := map[int]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		b, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		if f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])); len(f) > 1 {
			parents[pid], _ = strconv.Atoi(f[1])
		}
	}
	sum := 0.0
	for pid := range parents {
		below := false
		for p, depth := parents[pid], 0; p > 0 && depth < 1000; p, depth = parents[p], depth+1 {
			if p == root {
				below = true
				break
			}
		}
		if !below {
			continue
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		for l := range strings.Lines(string(b)) {
			if f := strings.Fields(l); len(f) > 1 && f[0] == "Pss:" {
				kb, _ := strconv.ParseFloat(f[1], 64)
				sum += kb * 1024
			}
		}
	}
	return sum
}
