package journal

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/fsutil"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
)

// Write order. One goroutine takes everything pending as a batch and writes
//
//  1. the batch's events to the segment, with an fsync if the batch has control entries or a Sync
//     is waiting;
//  2. the control entries to control.jsonl, with an fsync if a Sync is waiting.
//
// Thus an entry in control.jsonl is never there without the events before it, and control.jsonl can
// be trusted on its own. A crash may leave events without a control entry before them; recovery
// cuts those. Entries that arrive during a commit form the next batch: the slower the disk, the
// larger the batches. There is no fixed batching delay.

// A writer holds the journal's open files and buffers.
type writer struct {
	events, control       file
	eventsOff, controlOff int64
	eventsDirty           bool // events were written and not synced
	controlDirty          bool
	evBuf, ctlBuf         []byte
	evStart               int64          // offset of evBuf in the segment
	locs                  []admit.Loc    // locations of the batch's items
	tee                   []record.Entry // entries written but not durable
	undurable             int            // bytes written but not synced
	spare                 []item
	evKept, ctlKept       kept
	mark                  marker
	lastEvent             place // place of the last encoded line, like lastControl
	lastControl           place
}

// A kept holds the data written to a file since its last sync.
type kept struct {
	data []byte
	off  int64
}

func (k *kept) add(data []byte, off int64) {
	if len(k.data) == 0 {
		k.off = off
	}
	k.data = append(k.data, data...)
}

func (k *kept) clear() { k.data = shrink(k.data)[:0] }

// chunk is the number of bytes encoded before they are written.
const chunk = 1 << 20

func (w *writer) open(j *Journal, found *found) error {
	var err error
	if w.control, err = j.opts.open(filepath.Join(j.dir, controlFile)); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	w.controlOff = found.controlSize
	if w.events, err = j.opts.open(filepath.Join(j.dir, segmentFile(found.segment))); err != nil {
		w.control.Close()
		return fmt.Errorf("journal: %w", err)
	}
	w.eventsOff = found.segmentSize
	w.lastControl, w.lastEvent = found.lastControl, found.lastEvent
	for _, f := range []file{w.control, w.events} { // a killed process may have left data that is not durable
		if j.opts.NoSync {
			break
		}
		if err := f.Sync(); err != nil {
			w.close()
			return fmt.Errorf("journal: %w", err)
		}
	}
	if err := w.mark.open(j.dir, j.opts.Run, found, !j.opts.NoSync); err != nil {
		w.close()
		return err
	}
	for _, dir := range []string{filepath.Join(j.dir, eventsDir), j.dir, filepath.Dir(j.dir)} {
		if j.opts.NoSync {
			break
		}
		if err := fsutil.SyncDir(dir); err != nil {
			w.close()
			return fmt.Errorf("journal: %w", err)
		}
	}
	return nil
}

func (w *writer) close() {
	w.control.Close()
	w.events.Close()
}

// loop is the writer goroutine.
func (j *Journal) loop() {
	defer close(j.stopped)
	for {
		j.mu.Lock()
		for !j.dueLocked() {
			j.mu.Unlock()
			<-j.wake
			j.mu.Lock()
		}
		if j.err != nil {
			j.mu.Unlock()
			return
		}
		batch := j.pending
		j.pending, j.out.spare = j.out.spare[:0], nil
		j.bytes = 0
		sync := j.wantSync > j.durable || j.idle || j.closing
		j.idle = false
		last := j.seq
		closing := j.closing
		j.mu.Unlock()

		durable, err := j.commit(batch, sync)
		j.settle(batch, last, durable, err)
		if err == nil && durable {
			j.out.teeTo(j.opts.Tee)
		}
		if err == nil && closing {
			j.mu.Lock()
			if len(j.pending) > 0 {
				j.mu.Unlock()
				continue
			}
			err = ErrClosed
			j.mu.Unlock()
		}
		if err != nil {
			j.mu.Lock()
			j.err = err
			close(j.progress)
			j.progress = make(chan struct{})
			j.mu.Unlock()
			return
		}
	}
}

// dueLocked reports whether the writer has something to do now.
func (j *Journal) dueLocked() bool {
	return j.err != nil || j.closing || j.wantSync > j.durable || j.wantWrite > j.written || j.bytes >= j.ahead ||
		j.idle
}

// settle publishes the result of a commit.
func (j *Journal) settle(batch []item, last int64, durable bool, err error) {
	j.mu.Lock()
	if err == nil {
		for i := range batch {
			if a := batch[i].a; a != nil && !a.Closed {
				a.At = append(a.At, j.out.locs[i])
			}
		}
		j.written = last
		if j.finished != j.active { // only now does the index hold all entries of the previous segments
			j.finished = j.active
			select {
			case j.packWake <- struct{}{}:
			default:
			}
		}
		if durable {
			j.durable = last
			j.metrics.Commits++
		} else if len(batch) > 0 && len(j.pending) == 0 {
			j.timer.Reset(idleTime) // these entries must become durable eventually
		}
		j.metrics.Entries += int64(len(batch))
		close(j.progress)
		j.progress = make(chan struct{})
	}
	j.mu.Unlock()
	clear(batch)
	if cap(batch) <= 1<<16 {
		j.out.spare = batch[:0]
	}
}

// commit writes a batch. It syncs the batch and everything before it if sync is set or if much data
// is not yet durable. It reports whether everything is durable.
func (j *Journal) commit(batch []item, sync bool) (bool, error) {
	w := &j.out
	w.evBuf, w.ctlBuf, w.locs = w.evBuf[:0], w.ctlBuf[:0], w.locs[:0]
	w.evStart = w.eventsOff
	total := 0
	for i := range batch {
		e := &batch[i].e
		if admit.IsControl(e.Kind) {
			w.locs = append(w.locs, admit.At(0, w.controlOff+int64(len(w.ctlBuf))))
			n := len(w.ctlBuf)
			w.ctlBuf = appendLine(w.ctlBuf, e)
			total += len(w.ctlBuf) - n
			w.lastControl = placeOf(0, e.Seq, w.controlOff+int64(n), w.ctlBuf[n:len(w.ctlBuf)-1])
		} else {
			n, err := j.event(e)
			if err != nil {
				return false, err
			}
			total += n
		}
		if j.opts.Tee != nil {
			w.tee = append(w.tee, *e)
		}
	}
	w.undurable += total
	if w.undurable >= j.opts.Buffer {
		sync = true
	}
	if err := j.flushEvents(); err != nil {
		return false, err
	}
	if w.eventsDirty && (sync || len(w.ctlBuf) > 0) {
		if err := j.sync(w.events, &w.evKept); err != nil {
			return false, err
		}
		w.eventsDirty = false
	}
	if len(w.ctlBuf) > 0 {
		if err := j.write(w.control, w.ctlBuf, w.controlOff); err != nil {
			return false, err
		}
		w.ctlKept.add(w.ctlBuf, w.controlOff)
		w.controlOff += int64(len(w.ctlBuf))
		w.controlDirty = true
	}
	if w.controlDirty && sync {
		if err := j.sync(w.control, &w.ctlKept); err != nil {
			return false, err
		}
		w.controlDirty = false
	}
	w.evBuf, w.ctlBuf = shrink(w.evBuf), shrink(w.ctlBuf)
	j.mu.Lock()
	j.metrics.Bytes += int64(total)
	j.mu.Unlock()
	if w.eventsDirty || w.controlDirty {
		return false, nil
	}
	w.undurable = 0
	if w.mark.now.Control != w.lastControl || w.mark.now.Events != w.lastEvent {
		w.mark.now.Control, w.mark.now.Events = w.lastControl, w.lastEvent
		_ = w.mark.write() // on an error the mark lags behind, which is harmless
	}
	return true, nil
}

// event encodes one line for the segment, and starts a new segment if the line does not fit.
func (j *Journal) event(e *record.Entry) (int, error) {
	w := &j.out
	n := len(w.evBuf)
	w.evBuf = appendLine(w.evBuf, e)
	size := len(w.evBuf) - n
	off := w.evStart + int64(n)
	if off > 0 && off+int64(size) > j.opts.SegmentBytes {
		line := append([]byte(nil), w.evBuf[n:]...)
		w.evBuf = w.evBuf[:n]
		if err := j.rotate(); err != nil {
			return 0, err
		}
		w.evBuf = append(w.evBuf, line...)
		off = 0
	}
	w.locs = append(w.locs, admit.At(j.active, off)) // only this goroutine changes j.active
	w.lastEvent = placeOf(j.active, e.Seq, off, w.evBuf[len(w.evBuf)-size:len(w.evBuf)-1])
	if len(w.evBuf) >= chunk {
		return size, j.flushEvents()
	}
	return size, nil
}

// flushEvents writes the encoded events.
func (j *Journal) flushEvents() error {
	w := &j.out
	if len(w.evBuf) == 0 {
		return nil
	}
	if err := j.write(w.events, w.evBuf, w.evStart); err != nil {
		return err
	}
	w.evKept.add(w.evBuf, w.evStart)
	w.eventsOff = w.evStart + int64(len(w.evBuf))
	w.evStart = w.eventsOff
	w.evBuf = w.evBuf[:0]
	w.eventsDirty = true
	return nil
}

// rotate ends the segment. It is complete and durable before the next one exists.
func (j *Journal) rotate() error {
	w := &j.out
	if err := j.flushEvents(); err != nil {
		return err
	}
	if err := j.sync(w.events, &w.evKept); err != nil {
		return err
	}
	next, err := j.opts.open(filepath.Join(j.dir, segmentFile(j.active+1)))
	if err != nil {
		return j.explain(err)
	}
	if !j.opts.NoSync {
		if err := fsutil.SyncDir(filepath.Join(j.dir, eventsDir)); err != nil {
			next.Close()
			return j.explain(err)
		}
	}
	w.events.Close()
	w.events, w.eventsOff, w.evStart, w.eventsDirty = next, 0, 0, false
	w.lastEvent = place{Segment: j.active + 1}
	j.mu.Lock()
	j.active++
	j.metrics.Segments++
	j.mu.Unlock()
	return nil
}

func (j *Journal) sync(f file, kept *kept) error {
	defer kept.clear()
	if j.opts.NoSync {
		return nil
	}
	t := time.Now()
	err := f.Sync()
	if full(err) && j.dropBallast() {
		// Many disks report only now that they are full. The kernel may have dropped the pages, so
		// all of them are written again.
		if err := j.write(f, kept.data, kept.off); err != nil {
			return err
		}
		err = f.Sync()
	}
	if err != nil {
		return j.explain(err) // never just retry: a second fsync does not report what the first one lost
	}
	d := time.Since(t)
	j.mu.Lock()
	j.metrics.Syncs++
	j.metrics.SyncTime += d
	j.metrics.Longest = max(j.metrics.Longest, d)
	j.mu.Unlock()
	return nil
}

func (w *writer) teeTo(tee func([]record.Entry)) {
	if tee == nil || len(w.tee) == 0 {
		return
	}
	tee(w.tee)
	clear(w.tee)
	w.tee = w.tee[:0]
}

// shrink drops the buffer of an unusually large batch.
func shrink(b []byte) []byte {
	if cap(b) > 4*chunk {
		return nil
	}
	return b
}
