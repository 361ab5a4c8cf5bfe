package journal_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/journal/journaltest"
	"github.com/evalrun/evalrun/harness/record"
)

var update = flag.Bool("update", false, "write the golden journal anew")

func put(t *testing.T, j record.Journal, es ...record.Entry) {
	t.Helper()
	for _, e := range es {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func event(trial string, n int) record.Entry {
	return journaltest.Entry(record.KindEvent, trial, 1, 1,
		fmt.Sprintf(`{"id":%d,"text":"%s"}`, n, strings.Repeat("x", 100)))
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for range 1000 {
		if f() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

// Finished segments are compressed once no open attempt needs them, and can be read as before.
func TestPacking(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	opts := journal.Options{SegmentBytes: 2000, NoSync: true}
	j := open(t, dir, opts)
	put(t, j, journaltest.Begin("early", 1, 1))
	for n := range 30 {
		put(t, j, event("early", n))
	}
	put(t, j, journaltest.Begin("long", 1, 1), event("long", 0))
	if err := j.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	held, _ := filepath.Glob(filepath.Join(dir, "events", "*.jsonl"))
	if len(held) < 3 {
		t.Fatalf("%d segments", len(held))
	}
	put(t, j, journaltest.Verdict("early", 1, 1, true, record.Scored))
	for n := 1; n < 60; n++ {
		put(t, j, journaltest.Begin(fmt.Sprint(n), 1, 1), event(fmt.Sprint(n), 0),
			journaltest.Verdict(fmt.Sprint(n), 1, 1, true, record.Scored))
		if n%5 == 0 {
			put(t, j, event("long", n/5))
		}
		if err := j.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the first segment is packed", func() bool {
		_, err := os.Stat(held[0])
		return err != nil
	})
	if _, err := os.Stat(held[len(held)-1]); err != nil {
		t.Error("a segment of an open attempt was packed")
	}
	n := 0
	for _, err := range j.Attempt(t.Context(), "long", 1) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 2+11 {
		t.Errorf("%d entries of the long attempt", n)
	}
	put(t, j, journaltest.Verdict("long", 1, 1, true, record.Scored))
	all := scanAfter(t, j, dir)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, opts) // compresses the rest
	eventually(t, "all but the last are packed", func() bool {
		left, _ := filepath.Glob(filepath.Join(dir, "events", "*.jsonl"))
		return len(left) == 1
	})
	if w := j.Recovered().Warnings(); len(w) > 0 {
		t.Errorf("%q", w)
	}
	if d := cmp.Diff(seqs(all), seqs(scan(t, dir))); d != "" {
		t.Error(d)
	}
	j.Close()

	// A damaged archive costs what is in it, and no more.
	name := held[0] + ".zst"
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 0x55
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	var bad *journal.BadLine
	var missing *journal.Missing
	left := 0
	for _, err := range journal.Scan(dir) {
		if err == nil {
			left++
		} else if !errors.As(err, &bad) && !errors.As(err, &missing) {
			t.Errorf("%v", err)
		}
	}
	if bad == nil || missing == nil || left < len(all)-15 {
		t.Errorf("%v, %v, %d of %d entries left", bad, missing, left, len(all))
	}
}

func scanAfter(t *testing.T, j record.Journal, dir string) []record.Entry {
	t.Helper()
	if err := j.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return scan(t, dir)
}

// A slow Tee slows down Append; a waiting call can be canceled; order and completeness are
// preserved.
func TestTee(t *testing.T) {
	gate := make(chan struct{})
	var got []int64
	j := open(t, t.TempDir(), journal.Options{Buffer: 2000, NoSync: true, Tee: func(es []record.Entry) {
		<-gate
		got = append(got, seqs(es)...)
	}})
	put(t, j, journaltest.Begin("t", 1, 1))
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("enough"))
	defer cancel()
	n := 0
	var err error
	for ; err == nil; n++ {
		if n > 1000 {
			t.Fatal("nobody is slowed")
		}
		err = j.Append(ctx, event("t", n))
	}
	if err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("%v", err)
	}
	if err := j.Sync(ctx); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("sync: %v", err)
	}
	close(gate)
	put(t, j, event("t", n))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	want := make([]int64, n+1)
	for i := range want {
		want[i] = int64(i) + 1
	}
	if !slices.Equal(got, want) {
		t.Errorf("the tee got %v, want %v", got, want)
	}
	if m := j.Metrics(); m.Entries != int64(len(want)) || m.Bytes == 0 || m.Commits == 0 {
		t.Errorf("%+v", m)
	}
}

// Entries that nobody waits for become durable after a while, too.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got atomic.Int64
		j := open(t, t.TempDir(), journal.Options{NoSync: true,
			Tee: func(es []record.Entry) { got.Add(int64(len(es))) }})
		put(t, j, journaltest.Begin("t", 1, 1), event("t", 0))
		synctest.Wait()
		if n := got.Load(); n != 0 {
			t.Errorf("%d entries at once: each append wakes the writer", n)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := got.Load(); n != 2 {
			t.Errorf("%d entries after a second", n)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Concurrent Sync calls share an fsync, and a Sync without new entries costs nothing.
func TestSyncShared(t *testing.T) {
	j := open(t, t.TempDir(), journal.Options{})
	var wg sync.WaitGroup
	const sessions, steps = 64, 10
	for i := range sessions {
		wg.Go(func() {
			trial := fmt.Sprint(i)
			err := j.Append(t.Context(), journaltest.Begin(trial, 1, 1))
			for n := 0; n < steps && err == nil; n++ {
				if err = j.Append(t.Context(), event(trial, n)); err == nil {
					err = j.Sync(t.Context())
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	m := j.Metrics()
	if m.Syncs >= sessions*steps || m.SyncTime <= 0 || m.Longest <= 0 {
		t.Errorf("%d fsyncs for %d calls of Sync: %+v", m.Syncs, sessions*steps, m)
	}
	for range 100 {
		if err := j.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if now := j.Metrics(); now.Syncs != m.Syncs || now.Commits != m.Commits {
		t.Errorf("a sync with nothing new was not free: %+v", now)
	}
}

// A concurrent reader always sees a gapless prefix of what was written, including everything
// acknowledged before it started.
func TestScanLive(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{SegmentBytes: 20_000, NoSync: true})
	var acked atomic.Int64
	done := make(chan error)
	go func() {
		var err error
		for i := 0; i < 300 && err == nil; i++ {
			trial := fmt.Sprint(i)
			err = j.Append(context.Background(), journaltest.Begin(trial, 1, 1))
			for n := 0; n < i%7 && err == nil; n++ {
				err = j.Append(context.Background(), event(trial, n))
			}
			if err == nil {
				err = j.Append(context.Background(), journaltest.Verdict(trial, 1, 1, true, record.Scored))
			}
			if err == nil && i%3 == 0 {
				if err = j.Sync(context.Background()); err == nil {
					acked.Store(int64(2 * (i + 1)))
				}
			}
		}
		done <- err
	}()
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
		want := acked.Load()
		n, control := int64(0), int64(0)
		for e, err := range journal.Scan(dir) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; e.Seq != n {
				t.Fatalf("number %d at place %d", e.Seq, n)
			}
			if e.Kind != record.KindEvent {
				control++
			}
		}
		if control < want {
			t.Fatalf("%d control entries, %d were acknowledged", control, want)
		}
		n = 0
		for _, err := range journal.Control(dir) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if st, err := journal.ReadState(dir); err != nil || n < control || int64(st.Len())*2 < n-1 {
			t.Fatalf("state: %d trials, %d control entries, %v", st.Len(), n, err)
		}
	}
}

func TestLowSpace(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "run", "journal"), journal.Options{LowWater: 1 << 60})
	if err := j.Room(); !errors.Is(err, record.ErrLowSpace) || !strings.Contains(err.Error(), "evalrun resume") {
		t.Errorf("%v", err)
	}
	put(t, j, journaltest.Begin("t", 1, 1)) // running work may finish
	if err := j.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	if err := open(t, t.TempDir(), journal.Options{LowWater: -1}).Room(); err != nil {
		t.Errorf("no mark: %v", err)
	}
}

func TestClosed(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, j, journaltest.Begin("t", 1, 1))
	for range 2 {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Append(t.Context(), event("t", 0)); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if err := j.Sync(t.Context()); err != nil {
		t.Errorf("all is durable, but: %v", err)
	}
	if n := len(scan(t, dir)); n != 1 {
		t.Errorf("%d entries; Close writes what is there", n)
	}
	left := tree(t, dir)
	delete(left, "/control.jsonl")
	delete(left, "/mark")
	delete(left, "/events/0001.jsonl")
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRefusedEntries(t *testing.T) {
	for name, j := range map[string]record.Journal{"file": open(t, t.TempDir(), journal.Options{}),
		"memory": new(journaltest.Memory)} {
		for _, e := range []record.Entry{
			{}, {Kind: record.KindAttempt, Attempt: 1}, {Trial: "t", Attempt: 1},
			{Kind: record.KindAttempt, Trial: "t"},
			{Kind: record.KindAttempt, Trial: "t", Attempt: -1},
			{Kind: record.KindAttempt, Trial: "t", Attempt: 1, Data: make([]byte, 64<<20+1)},
		} {
			if err := j.Append(t.Context(), e); err == nil {
				t.Errorf("%s took kind %q, trial %q, attempt %d, %d bytes", name, e.Kind, e.Trial, e.Attempt,
					len(e.Data))
			}
		}
		if err := j.Append(t.Context(), journaltest.Begin("t", 1, 1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMemoryFails(t *testing.T) {
	var m journaltest.Memory
	put(t, &m, journaltest.Begin("t", 1, 1))
	if err := m.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, &m, event("t", 0))
	if n, all := len(m.Synced()), len(m.Entries()); n != 1 || all != 2 {
		t.Errorf("%d of %d entries are durable", n, all)
	}
	full := errors.New("disk full")
	m.Fail(full)
	if err := m.Append(t.Context(), event("t", 1)); !errors.Is(err, full) {
		t.Error(err)
	}
	if err := m.Sync(t.Context()); !errors.Is(err, full) {
		t.Error(err)
	}
}

// Large entries are accepted.
func TestLarge(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, journal.Options{NoSync: true})
	put(t, j, journaltest.Begin("t", 1, 1))
	var sizes []int
	for i := range 12 {
		size := 3 << (2 * i)
		sizes = append(sizes, size+2)
		put(t, j, journaltest.Entry(record.KindEvidence, "t", 1, 1, `"`+strings.Repeat("x", size)+`"`))
	}
	var back, scanned []int
	for e, err := range j.Attempt(t.Context(), "t", 1) {
		if err != nil {
			t.Fatal(err)
		}
		back = append(back, len(e.Data))
	}
	for _, e := range scanAfter(t, j, dir) {
		scanned = append(scanned, len(e.Data))
	}
	if !slices.Equal(back[1:], sizes) || !slices.Equal(scanned[1:], sizes) {
		t.Errorf("read back %v, scanned %v, want %v", back[1:], scanned[1:], sizes)
	}
}

// The journals in testdata were written in the version named by their folder, and every later
// version must read them.
func TestGolden(t *testing.T) {
	newest := fmt.Sprint("testdata/v", record.Version)
	if *update {
		writeGolden(t, newest)
	}
	for v := 1; v <= record.Version; v++ {
		t.Run(fmt.Sprint("form ", v), func(t *testing.T) { golden(t, fmt.Sprint("testdata/v", v)) })
	}
}

func golden(t *testing.T, dir string) {
	data, err := os.ReadFile(filepath.Join(dir, "entries.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want []record.Entry
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	compact := func(es []record.Entry) (out []string) {
		for _, e := range es {
			b, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(b))
		}
		return out
	}
	if d := cmp.Diff(compact(want), compact(scan(t, filepath.Join(dir, "journal")))); d != "" {
		t.Error(d)
	}
	j := open(t, copyTree(t, filepath.Join(dir, "journal")), journal.Options{})
	rec := j.Recovered()
	if w := rec.Warnings(); len(w) > 0 {
		t.Errorf("%q", w)
	}
	if s, _ := rec.State.Trial("00000000000000000002"); s.Open != 1 || s.Fence != 2 || s.Evidence != 1 {
		t.Errorf("%+v", s)
	}
	n := 0
	for _, err := range j.Attempt(t.Context(), "00000000000000000002", 1) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 4 {
		t.Errorf("%d entries of the open attempt", n)
	}
}

func writeGolden(t *testing.T, dir string) {
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	j := open(t, filepath.Join(dir, "journal"), journal.Options{SegmentBytes: 1500})
	when := time.Date(2026, 11, 21, 9, 30, 0, 0, time.UTC)
	step := func(e record.Entry) {
		when = when.Add(1234567 * time.Microsecond)
		e.Time = when
		put(t, j, e)
		if err := j.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const one, two, three = "00000000000000000001", "00000000000000000002", "00000000000000000003"
	step(journaltest.Begin(one, 1, 1))
	for n := range 12 {
		step(event(one, n))
	}
	step(journaltest.Entry(record.KindCall, one, 1, 1,
		`{"role":"main","n":0,"try":1,"model":"m","raw":{"text":"é\u2028<&>\"\\"}}`))
	step(journaltest.Verdict(one, 1, 1, true, record.Scored))
	step(journaltest.Entry(record.KindAmend, one, 1, 0, `{"why":"another scorer","reward":0.5}`))
	step(journaltest.Begin(two, 1, 2))
	step(journaltest.Entry(record.KindStage, two, 1, 2,
		`{"index":0,"name":"é","goal":"the beginning","goal_blob":"`+strings.Repeat("ab", 32)+`"}`))
	step(journaltest.Begin(three, 1, 3))
	step(journaltest.Verdict(three, 1, 3, false, record.Infra))
	e := event(two, 0)
	e.Fence = 2
	step(e)
	step(journaltest.Entry(record.KindEvidence, two, 1, 2, `{"stage":0,"end":"answered","data":{"answer":{}}}`))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, filepath.Join(dir, "journal"), journal.Options{}) // compresses finished segments
	eventually(t, "a segment is packed", func() bool {
		p, _ := filepath.Glob(filepath.Join(dir, "journal", "events", "*.zst"))
		return len(p) > 0
	})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := json.MarshalIndent(scan(t, filepath.Join(dir, "journal")), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "entries.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}
