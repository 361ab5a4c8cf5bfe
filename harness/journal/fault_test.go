package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/harness/record"
)

// A faultDisk creates files that share a limited amount of space, write short, and fail to sync on
// demand.
type faultDisk struct {
	mu       sync.Mutex
	room     int64 // bytes that can still be written; negative means no limit
	syncErr  error
	writeErr error
}

type faultFile struct {
	file
	d *faultDisk
}

func (d *faultDisk) open(name string) (file, error) {
	f, err := openFile(name)
	if err != nil {
		return nil, err
	}
	return &faultFile{f, d}, nil
}

func (d *faultDisk) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.writeErr != nil {
		n, _ := f.file.WriteAt(p[:len(p)/2], off)
		return n, f.d.writeErr
	}
	if f.d.room < 0 || int64(len(p)) <= f.d.room {
		if f.d.room >= 0 {
			f.d.room -= int64(len(p))
		}
		return f.file.WriteAt(p, off)
	}
	n, _ := f.file.WriteAt(p[:f.d.room], off)
	f.d.room = 0
	return n, syscall.ENOSPC
}

func (f *faultFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.syncErr != nil {
		return f.d.syncErr
	}
	return f.file.Sync()
}

func begin(trial string) record.Entry {
	return record.Entry{Kind: record.KindAttempt, Trial: trial, Attempt: 1, Fence: 1, Data: []byte(`{}`)}
}

func event(trial string, n int) record.Entry {
	return record.Entry{Kind: record.KindEvent, Trial: trial, Attempt: 1, Fence: 1,
		Data: fmt.Appendf(nil, `{"id":%d}`, n)}
}

func verdictOf(trial string) record.Entry {
	return record.Entry{Kind: record.KindVerdict, Trial: trial, Attempt: 1, Fence: 1,
		Data: []byte(`{"final":true,"status":"scored","end":"answered","reward":1}`)}
}

// everyCallFails checks that all calls return the first failure from now on.
func everyCallFails(t *testing.T, j *Journal, want error) {
	t.Helper()
	for what, err := range map[string]error{
		"append": j.Append(t.Context(), event("t", 99)),
		"sync":   j.Sync(t.Context()),
		"room":   j.Room(),
		"close":  j.Close(),
	} {
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "evalrun resume") {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
}

func count(t *testing.T, dir string) (n int) {
	t.Helper()
	for _, err := range Scan(dir) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func TestDiskFull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	disk := &faultDisk{room: -1}
	j, err := Open(dir, Options{open: disk.open, Ballast: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, ballastFile)
	if st, err := os.Stat(ballast); err != nil || st.Size() != 64<<10 {
		t.Fatalf("ballast: %v", err)
	}
	if err := j.Room(); err != nil {
		t.Errorf("room at the start: %v", err)
	}
	if err := j.Append(t.Context(), begin("t")); err != nil {
		t.Fatal(err)
	}
	if err := j.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	disk.set(func() { disk.room = 10 })
	// The disk is full except for the space of the ballast.
	go func() {
		for {
			if _, err := os.Stat(ballast); err != nil {
				disk.set(func() { disk.room = 2000 })
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	write := j.Append(t.Context(), event("t", 0))
	disk.set(func() {}) // only with the race detector
	if write != nil {
		t.Fatal(write)
	}
	err = j.Sync(t.Context())
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err == nil { // the space was freed in time
		if err := j.Room(); !errors.Is(err, record.ErrLowSpace) || !strings.Contains(err.Error(), "reserve") {
			t.Errorf("room without ballast: %v", err)
		}
		for n := 1; err == nil; n++ {
			if n > 100 {
				t.Fatal("a full disk goes on for ever")
			}
			if err = j.Append(t.Context(), event("t", n)); err == nil {
				err = j.Sync(t.Context())
			}
		}
	}
	if !strings.Contains(err.Error(), "disk full") {
		t.Errorf("%v", err)
	}
	everyCallFails(t, j, syscall.ENOSPC)
	if _, err := os.Stat(ballast); err == nil {
		t.Error("the ballast is still there")
	}
	j, err = Open(dir, Options{Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if len(j.Recovered().Damages) > 0 {
		t.Errorf("%q", j.Recovered().Warnings())
	}
	if err := j.Append(t.Context(), event("t", 100)); err != nil {
		t.Error(err)
	}
}

// The writer continues where a short write ended, once the ballast is removed.
func TestBallastPays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	disk := &shortDisk{}
	j, err := Open(dir, Options{open: disk.open, Ballast: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	disk.dir = dir
	for _, e := range []record.Entry{begin("t"), event("t", 0), event("t", 1), verdictOf("t")} {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.Room(); !errors.Is(err, record.ErrLowSpace) {
		t.Errorf("room: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if n := count(t, dir); n != 4 {
		t.Errorf("%d entries, want 4", n)
	}
}

// A shortDisk is full as long as the ballast exists.
type shortDisk struct {
	dir string
	err error // nil means ENOSPC
}

type shortFile struct {
	file
	d *shortDisk
}

func (d *shortDisk) open(name string) (file, error) {
	f, err := openFile(name)
	return shortFile{f, d}, err
}

func (f shortFile) WriteAt(p []byte, off int64) (int, error) {
	if _, err := os.Stat(filepath.Join(f.d.dir, ballastFile)); err == nil {
		n, _ := f.file.WriteAt(p[:len(p)/3], off)
		if f.d.err != nil {
			return n, f.d.err
		}
		return n, syscall.ENOSPC
	}
	if len(p) > 10 { // a short write without an error is illegal, but cheap to tolerate
		return f.file.WriteAt(p[:10], off)
	}
	return f.file.WriteAt(p, off)
}

func TestSyncFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	disk := &faultDisk{room: -1}
	teed := 0
	j, err := Open(dir, Options{open: disk.open, Ballast: -1, Tee: func(es []record.Entry) { teed += len(es) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), begin("t")); err != nil {
		t.Fatal(err)
	}
	if err := j.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	disk.set(func() { disk.syncErr = syscall.EIO })
	if err := j.Append(t.Context(), event("t", 0)); err != nil {
		t.Fatal(err)
	}
	if err := j.Sync(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v", err)
	}
	disk.set(func() { disk.syncErr = nil }) // the next fsync would report success
	everyCallFails(t, j, syscall.EIO)
	if teed != 1 {
		t.Errorf("%d entries went to the tee; only 1 is durable", teed)
	}
}

func TestWriteFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	disk := &faultDisk{room: -1}
	j, err := Open(dir, Options{open: disk.open, Ballast: -1, Buffer: 1000})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), begin("t")); err != nil {
		t.Fatal(err)
	}
	disk.set(func() { disk.writeErr = syscall.EIO })
	var wg sync.WaitGroup // writers that wait for buffer space get the error, too
	for range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				if err := j.Append(t.Context(), event("t", n)); err != nil {
					if !errors.Is(err, syscall.EIO) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	everyCallFails(t, j, syscall.EIO)
}

// A lossyDisk simulates a power failure: unsynced data may be there in part, with its blocks in any
// order.
type lossyDisk struct {
	mu    sync.Mutex
	files map[string]*lossyFile
}

type lossyFile struct {
	file
	name          string
	d             *lossyDisk
	written, safe int64
}

func (d *lossyDisk) open(name string) (file, error) {
	f, err := openFile(name)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &lossyFile{file: f, name: name, d: d, written: st.Size(), safe: st.Size()}
	d.files[name] = l
	return l, nil
}

func (f *lossyFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.file.WriteAt(p, off)
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.written = max(f.written, off+int64(n))
	return n, err
}

func (f *lossyFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.safe = f.written
	return nil
}

// cut simulates the power failure.
func (d *lossyDisk) cut(t *testing.T, rnd *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		if f.written == f.safe {
			continue
		}
		size := f.safe + rnd.Int64N(f.written-f.safe+1)
		if rnd.IntN(3) == 0 {
			size = f.written
		}
		if err := os.Truncate(f.name, size); err != nil {
			t.Fatal(err)
		}
		g, err := os.OpenFile(f.name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		const block = 512
		for at := f.safe; at < size; at = (at/block + 1) * block {
			if rnd.IntN(4) == 0 {
				g.WriteAt(make([]byte, min(size, (at/block+1)*block)-at), at)
			}
		}
		g.Close()
	}
}

// Power fails again and again. What a Sync acknowledged always exists, and a verdict in
// control.jsonl always has the events before it.
func TestPowerFailure(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	dir := filepath.Join(t.TempDir(), "journal")
	var acked sync.Map // trial → events, acknowledged
	next := 0
	for round := range 40 {
		disk := &lossyDisk{files: map[string]*lossyFile{}}
		j, err := Open(dir, Options{open: disk.open, Ballast: -1, SegmentBytes: 20_000})
		if err != nil {
			t.Fatal(err)
		}
		check(t, dir, &acked)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 4 {
			trial := fmt.Sprintf("%020x", next)
			next++
			every := 1 + rnd.IntN(5)
			wg.Go(func() {
				err := j.Append(t.Context(), begin(trial))
				for n := 0; err == nil; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if n == 50 {
						if err = j.Append(t.Context(), verdictOf(trial)); err == nil {
							if err = j.Sync(t.Context()); err == nil {
								acked.Store(trial, -n)
							}
						}
						return
					}
					e := event(trial, n)
					e.Data = fmt.Appendf(nil, `{"id":%d,"text":"%s"}`, n, strings.Repeat("x", n*7%300))
					if err = j.Append(t.Context(), e); err == nil && n%every == 0 {
						if err = j.Sync(t.Context()); err == nil {
							acked.Store(trial, n+1)
						}
					}
				}
				t.Error(err)
			})
		}
		time.Sleep(time.Duration(rnd.IntN(4000)) * time.Microsecond)
		close(stop)
		wg.Wait()
		// At the moment of the failure the process is gone, without the last sync of Close.
		j.mu.Lock()
		j.err = errors.New("gone")
		j.mu.Unlock()
		j.rouse()
		crash(j)
		disk.cut(t, rnd)
		_ = round
	}
	j, err := Open(dir, Options{Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	check(t, dir, &acked)
}

// crash ends the goroutines of a journal without a commit.
func crash(j *Journal) {
	j.closeOnce.Do(func() {
		j.packCancel()
		<-j.packing
		<-j.stopped
		j.timer.Stop()
		j.out.close()
	})
}

// check compares the files with what was acknowledged.
func check(t *testing.T, dir string, acked *sync.Map) {
	t.Helper()
	events := map[string]int{}
	final := map[string]bool{}
	for e, err := range Scan(dir) {
		if err != nil {
			t.Fatalf("scan: %v", err)
		}
		switch e.Kind {
		case record.KindEvent:
			if want := fmt.Sprintf(`{"id":%d,`, events[e.Trial]); !strings.HasPrefix(string(e.Data), want) {
				t.Fatalf("trial %s: %.30s, want %s", e.Trial, e.Data, want)
			}
			events[e.Trial]++
		case record.KindVerdict:
			if events[e.Trial] != 50 {
				t.Fatalf("trial %s has a verdict and %d events", e.Trial, events[e.Trial])
			}
			final[e.Trial] = true
		}
	}
	acked.Range(func(k, v any) bool {
		trial, n := k.(string), v.(int)
		if n < 0 && !final[trial] {
			t.Fatalf("trial %s: the verdict is gone", trial)
		}
		if max(n, -n) > events[trial] {
			t.Fatalf("trial %s: %d events, %d were acknowledged", trial, events[trial], max(n, -n))
		}
		return true
	})
}

// An orderDisk records the operations on its files.
type orderDisk struct {
	mu  sync.Mutex
	ops []string
}

type orderFile struct {
	file
	name string
	d    *orderDisk
}

func (d *orderDisk) open(name string) (file, error) {
	f, err := openFile(name)
	return orderFile{f, filepath.Base(name), d}, err
}

func (d *orderDisk) note(op string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops = append(d.ops, op)
}

func (d *orderDisk) take() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := strings.Join(d.ops, ", ")
	d.ops = nil
	return s
}

func (f orderFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.note("write " + f.name)
	return f.file.WriteAt(p, off)
}

func (f orderFile) Sync() error {
	f.d.note("sync " + f.name)
	return f.file.Sync()
}

// control.jsonl is written only after the events before its entries are durable, even if nobody
// waits for a sync.
func TestOrderOfWriting(t *testing.T) {
	disk := new(orderDisk)
	j, err := Open(t.TempDir(), Options{open: disk.open, Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	disk.take() // existing data is made durable first
	for _, c := range []struct {
		entries []record.Entry
		sync    bool
		want    string
	}{
		{[]record.Entry{begin("t"), event("t", 0)}, true,
			"write 0001.jsonl, sync 0001.jsonl, write control.jsonl, sync control.jsonl"},
		{[]record.Entry{event("t", 1), event("t", 2)}, true, "write 0001.jsonl, sync 0001.jsonl"},
		{[]record.Entry{event("t", 3)}, false, "write 0001.jsonl"},
		{[]record.Entry{{Kind: record.KindStage, Trial: "t", Attempt: 1, Fence: 1}}, false,
			"sync 0001.jsonl, write control.jsonl"},
		{[]record.Entry{event("t", 4)}, true, "write 0001.jsonl, sync 0001.jsonl, sync control.jsonl"},
		{nil, true, ""},
	} {
		for _, e := range c.entries {
			if err := j.Append(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if c.sync {
			err = j.Sync(t.Context())
		} else { // reading back writes but does not sync
			for _, e := range j.Attempt(t.Context(), "t", 1) {
				err = e
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := disk.take(); got != c.want {
			t.Errorf("%d entries, sync %v: %s; want %s", len(c.entries), c.sync, got, c.want)
		}
	}
}
