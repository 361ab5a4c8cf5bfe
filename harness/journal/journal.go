// Package journal implements a run's journal, the primary record of the run. Everything that
// happens is a line in one of two kinds of files, and what a Sync has acknowledged survives any
// crash.
//
//	control.jsonl      attempts, stages, evidence, results, verdicts, amendments, money:
//	                   all that a resume reads
//	events/0001.jsonl  events and model calls; a new segment every 256 MiB,
//	                   finished ones compressed to .jsonl.zst
//	mark               how far both are durable
//	quarantine/        data set aside by a recovery, listed in manifest.jsonl
//	ballast            disk space reserved for the last entries; only while the journal is open
//
// All entries share one sequence of numbers, from 1. [Open] recovers the journal and opens it for
// writing, by one process at a time. [Scan], [Control] and [ReadState] read, even while another
// process writes. Package journaltest has a journal in memory for tests. The line format is
// documented in line.go, the write order in commit.go, recovery in recover.go.
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
	// ErrNewer means that a later version of evalrun wrote this journal.
	ErrNewer = errors.New("the journal is of a newer form")
	// ErrClosed means that the journal was used after Close.
	ErrClosed = errors.New("journal: used after it was closed")
)

// Options configure a journal. The zero value is right for a run.
type Options struct {
	SegmentBytes int64 // size at which a segment is full; default 256 MiB
	Buffer       int   // bytes waiting to be written before Append blocks; default 8 MiB
	// LowWater is the free disk space in bytes below which Room returns an error. The default is 1
	// % of the disk, at least 256 MiB and at most 5 GiB; negative means none.
	LowWater int64
	Ballast  int64 // bytes reserved for the last entries; default 16 MiB; negative means none
	// Run is the run's ID. It is used to detect a journal of another run.
	Run string
	// NoSync skips every fsync: for tests and measurements only.
	NoSync bool
	// Tee is called with every appended entry, once, in order, after it is durable. A slow Tee
	// slows down the journal. The slice is valid until Tee returns. Earlier entries are not
	// repeated; use Scan up to Recovery.Seq for them.
	Tee func([]record.Entry)

	open func(name string) (file, error) // replaced in tests
}

// Metrics are counters since the journal was opened.
type Metrics struct {
	Entries, Bytes    int64
	Commits           int64         // number of durable batches
	Syncs             int64         // number of fsync calls
	SyncTime, Longest time.Duration // total and longest time of an fsync
	Segments          int64         // segments started
}

// A Journal writes one run's journal. It implements record.Journal.
type Journal struct {
	dir  string
	opts Options
	rec  Recovery

	mu         sync.Mutex
	index      *admit.Index
	seq        int64  // last number assigned
	written    int64  // last number in the files
	durable    int64  // last durable number
	wantSync   int64  // a caller waits for this number to be durable
	wantWrite  int64  // a caller waits for this number to be in the files
	pending    []item // accepted but not written
	bytes      int    // size of pending
	ahead      int    // bytes pending above which they are written even if nobody waits
	idle       bool   // the idle timer has fired
	closing    bool
	err        error         // first failure
	progress   chan struct{} // closed when written, durable or err change
	wake       chan struct{} // wakes the writer; capacity 1
	timer      *time.Timer
	pins       map[int]int // number of readers by segment
	active     int         // the segment being written
	finished   int         // segments before this one may be compressed
	looked     time.Time
	low        error
	noBallast  bool
	metrics    Metrics
	stopped    chan struct{}
	packing    chan struct{} // closed when the packer has ended
	packWake   chan struct{}
	packCancel context.CancelFunc
	closeOnce  sync.Once

	out writer // used by the writer goroutine only
}

// An item is an entry waiting to be written.
type item struct {
	e record.Entry
	a *admit.Attempt
}

const (
	// Entries that nobody waits for are written after this time, so that readers and Tee see them.
	// A Sync does not wait for it.
	idleTime = 500 * time.Millisecond
	// Entries that nobody waits for are also written once there are this many bytes of them.
	writeAhead = 256 << 10
	// Approximate memory used by an entry in addition to its data, in bytes.
	overhead = 200
)

// Open opens the journal in dir for writing, creates it if there is none, and recovers it after a
// crash (see Recovered). The caller must hold the lock of the run's folder. If durable entries are
// lost, Open changes nothing and returns an error that matches ErrLost; see Repair.
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

// Append implements record.Journal. It returns record.ErrNotOpen for an entry of an attempt that is
// not the trial's open one. The context matters only while Append waits.
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

// Sync implements record.Journal. Concurrent callers share one fsync.
func (j *Journal) Sync(ctx context.Context) error {
	j.mu.Lock()
	target := j.seq
	j.wantSync = max(j.wantSync, target)
	return j.waitLocked(ctx, func() bool { return j.durable >= target })
}

// waitLocked waits until done reports true or the journal fails, and unlocks j.mu.
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

// Recovered returns what Open found. Only the first call returns the State: its size grows with the
// run, and the journal does not keep it.
func (j *Journal) Recovered() Recovery {
	j.mu.Lock()
	defer j.mu.Unlock()
	rec := j.rec
	j.rec.State = nil
	return rec
}

// Seq returns the last assigned number.
func (j *Journal) Seq() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

// Metrics returns the current counters.
func (j *Journal) Metrics() Metrics {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.metrics
}

// Close writes and syncs all pending entries and closes the journal. It returns the journal's first
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

// ring is called by the idle timer.
func (j *Journal) ring() {
	j.mu.Lock()
	j.idle = j.durable < j.seq
	j.mu.Unlock()
	j.rouse()
}
