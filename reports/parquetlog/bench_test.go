package parquetlog

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/reporttest"
)

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWriter is the cost of an event in CPU time, all threads counted, with the verdicts and
// calls that come with it.
func BenchmarkWriter(b *testing.B) {
	o := reporttest.Options{Tasks: 100, Repeats: 1, Calls: 20, Plain: true}
	entries := reporttest.All(o)
	events := 0
	for i := range entries {
		if entries[i].Kind == record.KindEvent {
			events++
		}
	}
	var spent time.Duration
	total := 0
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		b.StartTimer()
		start := cpu()
		w, err := Open(dir, reporttest.Plan(o), Options{})
		if err != nil {
			b.Fatal(err)
		}
		w.Add(entries)
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		spent += cpu() - start
		total += events
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(total), "cpu-µs/event")
	b.ReportMetric(float64(len(entries))/float64(events), "entries/event")
}

// TestMemory: what is held does not depend on what is done.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the heap, for some seconds")
	}
	old := cuts
	cuts.groupRows = 256 // so that a few hundred trials fill it
	t.Cleanup(func() { cuts = old })
	peak := func(tasks int) uint64 {
		o := reporttest.Options{Tasks: tasks, Repeats: 1, Calls: 1, Plain: true}
		plan := reporttest.Plan(reporttest.Options{Tasks: 1})
		w, err := Open(t.TempDir(), plan, Options{Every: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		var high uint64
		n := 0
		var batch []record.Entry
		for e := range reporttest.Entries(o) {
			batch = append(batch, e)
			if n++; n%100 == 0 {
				w.Add(batch)
				batch = batch[:0]
			}
			if n%2_000 == 0 {
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				high = max(high, m.HeapAlloc)
			}
		}
		w.Add(batch)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return high
	}
	few, many := peak(150), peak(700)
	t.Logf("450 trials: %d KiB, 2,100 trials: %d KiB", few>>10, many>>10)
	if many > few+few/2+8<<20 {
		t.Errorf("450 trials hold %d KiB, 2,100 trials %d KiB", few>>10, many>>10)
	}
}
