package journal

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/internal/fsutil"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
)

// The order of writing. One goroutine takes all that is pending, and writes
//
//  1. the events of the batch to the segment; when the batch has control entries or somebody waits in Sync, fsync;
//  2. the control entries to control.jsonl; when somebody waits, fsync.
//
// So an entry in control.jsonl is never there without the events before it, and control.jsonl can
// be believed by itself. The other way round a crash may leave events without the control entry
// before them; recovery cuts those. What arrives meanwhile is the next batch: the slower the disk,
// the larger the batches; nobody waits for a window.

// A writer holds the files.
type writer struct {
	events, control       file
	eventsOff, controlOff int64
	eventsDirty           bool // written and not synced
	controlDirty          bool
	evBuf, ctlBuf         []byte
	evStart               int64          // where evBuf begins in the segment
	locs                  []admit.Loc    // of the batch's items
	tee                   []record.Entry // written, not durable
	undurable             int            // bytes written and not synced
	spare                 []item
	evKept, ctlKept       kept
	mark                  marker
	lastEvent             place // of what is encoded, as lastControl
	lastControl           place
}

// kept is what a file was given since its last sync.
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

// chunk is how much is encoded before it is written.
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
	for _, f := range []file{w.control, w.events} { // a process that was killed may have left what is not durable yet
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

// dueLocked says whether there is something to do now.
func (j *Journal) dueLocked() bool {
	return j.err != nil || j.closing || j.wantSync > j.durable || j.wantWrite > j.written || j.bytes >= j.ahead ||
		j.idle
}

// settle tells everybody what a commit has done.
func (j *Journal) settle(batch []item, last int64, durable bool, err error) {
	j.mu.Lock()
	if err == nil {
		for i := range batch {
			if a := batch[i].a; a != nil && !a.Closed {
				a.At = append(a.At, j.out.locs[i])
			}
		}
		j.written = last
		if j.finished != j.active { // only now does the index know of all entries in the segments before
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
			j.timer.Reset(idleTime) // it is to become durable some time
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

// commit writes a batch, and makes it and all before it durable if asked to or if there is much. It
// says whether it did.
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
		_ = w.mark.write() // else it is behind, which does no harm
	}
	return true, nil
}

// event encodes one line for the segment, and begins a new segment where it does not fit.
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
	w.locs = append(w.locs, admit.At(j.active, off)) // only this goroutine changes active
	w.lastEvent = placeOf(j.active, e.Seq, off, w.evBuf[len(w.evBuf)-size:len(w.evBuf)-1])
	if len(w.evBuf) >= chunk {
		return size, j.flushEvents()
	}
	return size, nil
}

// flushEvents writes the events that are encoded.
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

// rotate ends the segment, which is complete and durable before the next one is there.
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
		// Many disks find out only now that there is no room. The kernel may have forgotten the
		// pages, so all of them are written again.
		if err := j.write(f, kept.data, kept.off); err != nil {
			return err
		}
		err = f.Sync()
	}
	if err != nil {
		return j.explain(err) // never just tried again: a second sync knows nothing of what the first one lost
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

// shrink gives the buffer of an unusually large batch back.
func shrink(b []byte) []byte {
	if cap(b) > 4*chunk {
		return nil
	}
	return b
}
