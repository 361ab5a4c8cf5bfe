// Package journal is the truth of a run: everything that happens is a line in one of two kinds of
// files, and what a Sync has acknowledged survives any crash.
//
//	control.jsonl         attempts, stages, evidence, results, verdicts, amendments, money: all that a resume reads
//	events/0001.jsonl     events and model calls; a new segment every 256 MiB, finished ones compressed to .jsonl.zst
//	mark                  how far both are durable
//	quarantine/           what a recovery set apart, and manifest.jsonl, which names it
//	ballast               room on the disk for the last entries; only while the journal is open
//
// All entries share one sequence of numbers, from 1. [Open] recovers and writes, one process at a
// time; [Scan], [Control] and [ReadState] read, also while another process writes. [Memory] is a
// journal for tests of others. The form of a line is in line.go, the order of writing in commit.go,
// recovery in recover.go.
package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/evalrun/evalrun/harness/record"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
)

var (
	// ErrNewer: a later version of evalrun wrote this journal.
	ErrNewer = errors.New("the journal is of a newer form")
	// ErrClosed: the journal was used after Close.
	ErrClosed = errors.New("journal: used after it was closed")
)

// Options of a journal. The zero value is right for a run.
type Options struct {
	SegmentBytes int64 // when a segment of events is full; default 256 MiB
	Buffer       int   // bytes waiting to be written before Append waits; default 8 MiB
	// free disk below which Room says no; default 1 % of the disk, at least 256 MiB and at most 5
	// GiB; negative: none
	LowWater int64
	Ballast  int64 // bytes set aside for the last entries; default 16 MiB; negative: none
	// Run is the run's ID. It tells the journal from one of another run that was put in its place.
	Run string
	// NoSync leaves out every fsync: for tests and measurements only.
	NoSync bool
	// Tee gets every entry that is appended, once, in order, after it has become durable. A slow
	// one slows the journal. The slice is good until it returns. What was there before is not
	// repeated: Scan has it, up to Recovery.Seq.
	Tee func([]record.Entry)

	open func(name string) (file, error) // for tests
}

// Metrics of a journal since it was opened.
type Metrics struct {
	Entries, Bytes    int64
	Commits           int64         // batches made durable
	Syncs             int64         // calls of fsync
	SyncTime, Longest time.Duration // in fsync
	Segments          int64         // begun
}

// A Journal writes one run's journal. It is a record.Journal.
type Journal struct {
	dir  string
	opts Options
	rec  Recovery

	mu         sync.Mutex
	index      *admit.Index
	seq        int64  // last number given
	written    int64  // last number in the files
	durable    int64  // last number that is durable
	wantSync   int64  // somebody waits for this number to be durable
	wantWrite  int64  // … or to be in the files
	pending    []item // taken, not written
	bytes      int    // of pending
	ahead      int    // so many are written without being waited for
	idle       bool   // the idle timer rang
	closing    bool
	err        error         // first failure
	progress   chan struct{} // closed when written, durable or err change
	wake       chan struct{} // to the writer, one place
	timer      *time.Timer
	pins       map[int]int // segments that are being read
	active     int         // segment that is being written
	finished   int         // segments before it may be packed
	looked     time.Time
	low        error
	noBallast  bool
	metrics    Metrics
	stopped    chan struct{}
	packing    chan struct{} // closed when the packer has ended
	packWake   chan struct{}
	packCancel context.CancelFunc
	closeOnce  sync.Once

	out writer // the writer goroutine's own
}

// An item waits to be written.
type item struct {
	e record.Entry
	a *admit.Attempt
}

const (
	// What is not waited for is written after this time, so that readers and the Tee see it. A Sync
	// never waits for it.
	idleTime = 500 * time.Millisecond
	// What is not waited for is also written once there is so much of it.
	writeAhead = 256 << 10
	// An entry costs memory beside its data.
	overhead = 200
)

// Open opens the journal in dir for writing, makes it when there is none, and recovers it after a
// crash: see Recovered. The caller holds the lock of the run's folder. Where something that was
// durable is lost it changes nothing, and the error is ErrLost: see Repair.
func Open(dir string, opts Options) (*Journal, error) {
	if opts.SegmentBytes <= 0 {
		opts.SegmentBytes = 256 << 20
	}
	if opts.Buffer <= 0 {
		opts.Buffer = 8 << 20
	}
	if opts.Ballast == 0 {
		opts.Ballast = 16 << 20
	}
	if opts.open == nil {
		opts.open = openFile
	}
	if err := os.MkdirAll(filepath.Join(dir, eventsDir), 0o755); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	switch losses, err := Verify(dir, opts.Run); {
	case err != nil:
		return nil, err
	case len(losses) > 0:
		return nil, &LossError{losses}
	}
	found, err := recoverDir(dir, false)
	if err != nil {
		return nil, err
	}
	j := &Journal{
		dir: dir, opts: opts, rec: found.Recovery, index: found.index, seq: found.seq, written: found.seq,
		durable: found.seq,
		ahead:   min(writeAhead, opts.Buffer), active: found.segment, finished: found.segment,
		progress: make(chan struct{}), wake: make(chan struct{}, 1), pins: map[int]int{},
		stopped: make(chan struct{}), packing: make(chan struct{}), packWake: make(chan struct{}, 1),
	}
	j.timer = time.AfterFunc(time.Hour, j.ring)
	j.timer.Stop()
	if err := j.out.open(j, found); err != nil {
		return nil, err
	}
	j.layBallast()
	ctx, cancel := context.WithCancel(context.Background())
	j.packCancel = cancel
	go j.packer(ctx)
	go j.loop()
	return j, nil
}

// Append implements record.Journal. An entry of an attempt that is not the trial's open one is
// refused with record.ErrNotOpen. The context matters only while it waits.
func (j *Journal) Append(ctx context.Context, e record.Entry) error {
	if err := admit.Complete(&e); err != nil {
		return err
	}
	j.mu.Lock()
	for j.err == nil && !j.closing && j.bytes >= j.opts.Buffer {
		ch := j.progress
		j.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return fmt.Errorf("journal: waiting to write: %w", context.Cause(ctx))
		}
		j.mu.Lock()
	}
	defer j.mu.Unlock()
	if err := j.deadLocked(); err != nil {
		return err
	}
	a, err := j.index.Admit(&e)
	if err != nil {
		return err
	}
	j.seq++
	e.Seq = j.seq
	if len(j.pending) == 0 {
		j.timer.Reset(idleTime)
	}
	j.pending = append(j.pending, item{e, a})
	before := j.bytes
	j.bytes += len(e.Data) + overhead
	if before < j.ahead && j.bytes >= j.ahead {
		j.rouse()
	}
	return nil
}

// Sync implements record.Journal. Callers that wait at the same time share one fsync.
func (j *Journal) Sync(ctx context.Context) error {
	j.mu.Lock()
	target := j.seq
	j.wantSync = max(j.wantSync, target)
	return j.waitLocked(ctx, func() bool { return j.durable >= target })
}

// waitLocked waits for a condition that the writer brings about, and unlocks.
func (j *Journal) waitLocked(ctx context.Context, done func() bool) error {
	first := true
	for j.err == nil && !done() {
		ch := j.progress
		j.mu.Unlock()
		if first {
			j.rouse()
			first = false
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return fmt.Errorf("journal: waiting for the disk: %w", context.Cause(ctx))
		}
		j.mu.Lock()
	}
	err := j.err
	if errors.Is(err, ErrClosed) && done() {
		err = nil
	}
	j.mu.Unlock()
	return err
}

// Recovered tells what Open found. The State is handed over to the first who asks: it is as large
// as the run is long, and the journal does not need it.
func (j *Journal) Recovered() Recovery {
	j.mu.Lock()
	defer j.mu.Unlock()
	rec := j.rec
	j.rec.State = nil
	return rec
}

// Seq is the last number that was given.
func (j *Journal) Seq() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

// Metrics returns the counters as they are now.
func (j *Journal) Metrics() Metrics {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.metrics
}

// Close writes and syncs what is there, and ends the journal. It returns the journal's first
// failure. It may be called again.
func (j *Journal) Close() error {
	j.closeOnce.Do(func() {
		j.packCancel()
		j.mu.Lock()
		j.closing = true
		j.mu.Unlock()
		j.rouse()
		<-j.stopped
		<-j.packing
		j.timer.Stop()
		j.out.mark.close(!j.opts.NoSync)
		j.out.close()
		os.Remove(filepath.Join(j.dir, ballastFile))
	})
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(j.err, ErrClosed) {
		return nil
	}
	return j.err
}

func (j *Journal) deadLocked() error {
	if j.err == nil && j.closing {
		return ErrClosed
	}
	return j.err
}

// rouse wakes the writer.
func (j *Journal) rouse() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// ring is the idle timer's.
func (j *Journal) ring() {
	j.mu.Lock()
	j.idle = j.durable < j.seq
	j.mu.Unlock()
	j.rouse()
}
