package browsers_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/browsers"
)

// small is a page of the size and the contract of MiniWoB's.
const small = `<!doctype html><title>small</title><style>#wrap{width:160px;height:210px;font:10px Arial}</style>
<div id=wrap><div id=query>Click on the button that was not clicked.</div><div id=area>
<input id=name><input type=checkbox id=c><label for=c>yes</label><select><option>one<option>two</select><p>Some text on it.</p>
<button id=b onclick="this.textContent = 'clicked ' + ++n">clicked 0</button></div></div><script>let n = 0</script>`

// pss is the memory of a browser's processes, shared pages by share, in bytes; and how many
// processes they are.
func pss(dir string) (total int64, n int) {
	for _, pid := range processTree(users(dir)) {
		b, err := os.ReadFile(filepath.Join("/proc", pid, "smaps_rollup"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "Pss:"); ok {
				kb, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
				total += kb << 10
				n++
			}
		}
	}
	return total, n
}

// BenchmarkMany has many environments alive at once. EVALRUN_BENCH_ALIVE sets how many ("64,200"),
// EVALRUN_BENCH_FLAGS more flags of the browser.
func BenchmarkMany(b *testing.B) {
	needBrowser(b)
	alive := os.Getenv("EVALRUN_BENCH_ALIVE")
	if alive == "" {
		alive = "16"
	}
	for _, word := range strings.Split(alive, ",") {
		n, err := strconv.Atoi(word)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(word, func(b *testing.B) { many(b, n) })
	}
}

func many(b *testing.B, n int) {
	dir, err := os.MkdirTemp("", "pool-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.Remove(dir) }) // once the pool has been seen to be gone
	os.Chmod(dir, 0o755)
	p := newPool(b, browsers.Options{Dir: dir, Args: strings.Fields(os.Getenv("EVALRUN_BENCH_FLAGS")),
		Plain: os.Getenv("EVALRUN_BENCH_PLAIN") != ""})
	url, host := site(b, map[string]string{"/": small})
	access := p.For(browsers.AccessOptions{Hosts: []string{host}})
	envs := make([]*browsergym.Env, n)
	began := time.Now()
	each(b, n, func(ctx context.Context, i int) error {
		e, err := browsergym.New(browsergym.Options{
			Browser: access,
			Task: func(uint32) (browsergym.Task, error) {
				return &browsergym.Openended{URL: url, Goal: browsergym.Text("click")}, nil
			},
		})
		if err != nil {
			return err
		}
		envs[i] = e
		_, _, err = e.Reset(ctx, 0)
		return err
	})
	b.ReportMetric(time.Since(began).Seconds()/float64(n)*1e3, "ms/reset")
	b.ResetTimer()
	steps := 0
	var late atomic.Int64
	began = time.Now()
	for b.Loop() {
		each(b, n, func(ctx context.Context, i int) error {
			for range 3 {
				r, err := envs[i].Step(ctx, "click('15')")
				if err != nil {
					return err
				}
				// that it took too long, where there is more to do than the machine can
				if r.Observation.LastError != "" {
					late.Add(1)
				}
			}
			return nil
		})
		steps += 3 * n
	}
	b.ReportMetric(float64(steps)/time.Since(began).Seconds(), "steps/s")
	b.ReportMetric(float64(late.Load())/float64(steps), "late/step")
	total, procs := pss(dir)
	b.ReportMetric(float64(total)/float64(n)/(1<<20), "MiB/env")
	b.ReportMetric(float64(total)/(1<<20), "MiB")
	b.ReportMetric(float64(procs), "processes")
	b.ReportMetric(0, "ns/op")
	for _, e := range envs {
		if err := e.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}
}

// each does something for all of n at once, sixteen at a time.
func each(b *testing.B, n int, do func(ctx context.Context, i int) error) {
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	turn := make(chan struct{}, 16)
	for i := range n {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			if err := do(ctx, i); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
}
