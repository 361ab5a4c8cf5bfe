package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/journal/journaltest"
	"github.com/evalrun/evalrun/harness/record"
)

// Run with -benchtime and compare within one run. The baseline is the cost of the same bytes with a
// plain file.

// cpu returns the processor time of this process in microseconds.
func cpu() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec)*1e6 + float64(u.Utime.Usec+u.Stime.Usec)
}

// perEntry reports the processor time of one entry.
func perEntry(b *testing.B, start float64, entries int) {
	b.ReportMetric((cpu()-start)/float64(entries), "cpu-µs/entry")
}

func benchOpen(b *testing.B, opts journal.Options) *journal.Journal {
	b.Helper()
	opts.Ballast = -1
	j, err := journal.Open(b.TempDir(), opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { j.Close() })
	return j
}

var benchData = fmt.Sprintf(`{"id":123,"time":"2026-11-21T10:00:07.120000Z","mono_us":7120000,"source":"agent","class":"observation","kind":"run","body":{"code":0,"output":"%s"}}`,
	strings.Repeat("a line of output <&>\\n", 20))

// Append alone, with a Sync every 100 entries.
func BenchmarkAppend(b *testing.B) {
	j := benchOpen(b, journal.Options{})
	must(b, j.Append(b.Context(), journaltest.Begin("00000000000000000001", 1, 1)))
	e := journaltest.Entry(record.KindEvent, "00000000000000000001", 1, 1, benchData)
	b.SetBytes(int64(len(benchData)))
	b.ReportAllocs()
	start := cpu()
	for i := 0; b.Loop(); i++ {
		must(b, j.Append(b.Context(), e))
		if i%100 == 99 {
			must(b, j.Sync(b.Context()))
		}
	}
	must(b, j.Sync(b.Context()))
	perEntry(b, start, b.N)
}

func must(b *testing.B, err error) {
	if err != nil {
		b.Helper()
		b.Fatal(err)
	}
}

// Concurrent sessions, each syncing after every third entry, like a step does.
func BenchmarkSteps(b *testing.B) {
	for _, sessions := range []int{1, 16, 256, 4096} {
		b.Run(fmt.Sprint(sessions), func(b *testing.B) {
			j := benchOpen(b, journal.Options{})
			for s := range sessions {
				must(b, j.Append(b.Context(), journaltest.Begin(fmt.Sprintf("%020x", s), 1, 1)))
			}
			must(b, j.Sync(b.Context()))
			begin := j.Metrics()
			start := cpu()
			b.ResetTimer()
			var wg sync.WaitGroup
			for s := range sessions {
				e := journaltest.Entry(record.KindEvent, fmt.Sprintf("%020x", s), 1, 1, benchData)
				wg.Go(func() {
					for n := s; n < b.N; n += sessions {
						for range 3 {
							must(b, j.Append(b.Context(), e))
						}
						must(b, j.Sync(b.Context()))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			m := j.Metrics()
			perEntry(b, start, 3*b.N)
			b.ReportMetric(float64(m.Syncs-begin.Syncs)/float64(b.N), "fsyncs/step")
		})
	}
	b.Run("floor", func(b *testing.B) { // write and fdatasync, one after the other
		f, err := os.Create(filepath.Join(b.TempDir(), "f"))
		must(b, err)
		defer f.Close()
		data := []byte(strings.Repeat(benchData, 3))
		start := cpu()
		for b.Loop() {
			_, err := f.Write(data)
			must(b, err)
			must(b, journal.Datasync(f))
		}
		perEntry(b, start, 3*b.N)
	})
}

func BenchmarkScan(b *testing.B) {
	dir := b.TempDir()
	j, err := journal.Open(dir, journal.Options{NoSync: true, Ballast: -1})
	must(b, err)
	const entries = 50_000
	must(b, j.Append(b.Context(), journaltest.Begin("00000000000000000001", 1, 1)))
	for range entries {
		must(b, j.Append(b.Context(), journaltest.Entry(record.KindEvent, "00000000000000000001", 1, 1, benchData)))
	}
	must(b, j.Close())
	start := cpu()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range journal.Scan(dir) {
			must(b, err)
			n++
		}
		if n != entries+1 {
			b.Fatal(n)
		}
	}
	perEntry(b, start, b.N*entries)
}

// What a resume reads for 100,000 finished trials.
func BenchmarkState(b *testing.B) {
	dir := b.TempDir()
	j, err := journal.Open(dir, journal.Options{NoSync: true, Ballast: -1})
	must(b, err)
	const trials = 100_000
	goal := fmt.Sprintf(`{"index":0,"goal":"%s","events":0}`, strings.Repeat("Do it. ", 60))
	answer := fmt.Sprintf(`{"stage":0,"end":"answered","data":{"answer":{"parts":[{"text":"%s"}]}}}`,
		strings.Repeat("so ", 200))
	for n := range trials {
		id := fmt.Sprintf("%020x", n*7919)
		must(b, j.Append(b.Context(), journaltest.Begin(id, 1, int64(n))))
		must(b, j.Append(b.Context(), journaltest.Entry(record.KindStage, id, 1, int64(n), goal)))
		must(b, j.Append(b.Context(), journaltest.Entry(record.KindEvent, id, 1, int64(n), `{"id":0}`)))
		must(b, j.Append(b.Context(), journaltest.Entry(record.KindEvidence, id, 1, int64(n), answer)))
		must(b, j.Append(b.Context(), journaltest.Entry(record.KindResult, id, 1, int64(n),
			`{"stage":0,"scores":[{"name":"pass","primary":true,"value":1}]}`)))
		must(b, j.Append(b.Context(), journaltest.Verdict(id, 1, int64(n), true, record.Scored)))
	}
	must(b, j.Close())
	st, err := os.Stat(filepath.Join(dir, "control.jsonl"))
	must(b, err)
	b.Run("read", func(b *testing.B) {
		b.SetBytes(st.Size())
		for b.Loop() {
			s, err := journal.ReadState(dir)
			must(b, err)
			if s.Len() != trials {
				b.Fatal(s.Len())
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		b.SetBytes(st.Size())
		for b.Loop() {
			j, err := journal.Open(dir, journal.Options{NoSync: true, Ballast: -1})
			must(b, err)
			if s := j.Recovered().State; s.Len() != trials {
				b.Fatal(s.Len())
			}
			must(b, j.Close())
		}
	})
	b.Run("memory", func(b *testing.B) {
		var before, after runtime.MemStats
		for b.Loop() {
			runtime.GC()
			runtime.ReadMemStats(&before)
			s, err := journal.ReadState(dir)
			must(b, err)
			runtime.GC()
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(s)
		}
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/trials, "B/trial")
		j, err := journal.Open(dir, journal.Options{NoSync: true, Ballast: -1})
		must(b, err)
		j.Recovered() // handed over and forgotten
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/trials, "open-B/trial")
		must(b, j.Close())
	})
}
