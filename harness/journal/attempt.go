package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/harness/record"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
)

// Attempt implements record.Journal by reading the entries from the files. An attempt can be read
// until its trial is decided. If the trial was already decided when the journal was opened and may
// be retried (ledger.Reopens), Attempt yields the entries of the events files.
func (j *Journal) Attempt(ctx context.Context, trial string, number int) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		if err := j.attempt(ctx, trial, number, yield); err != nil {
			yield(record.Entry{}, fmt.Errorf("journal: reading attempt %d of trial %s: %w", number, trial, err))
		}
	}
}

func (j *Journal) attempt(ctx context.Context, trial string, number int, yield func(record.Entry, error) bool) error {
	j.mu.Lock()
	a := j.index.Find(trial, number)
	if a == nil {
		j.mu.Unlock()
		return j.past(ctx, trial, number, yield)
	}
	count, target := a.Count, j.seq
	if len(a.At) < count {
		j.wantWrite = max(j.wantWrite, target)
		if err := j.waitLocked(ctx, func() bool { return len(a.At) >= count || a.Closed }); err != nil {
			return err
		}
		j.mu.Lock()
	}
	if a.Closed {
		j.mu.Unlock()
		return record.ErrNotOpen
	}
	at := a.At[:count:count]
	pins := j.pinLocked(at)
	j.mu.Unlock()
	defer j.unpin(pins)

	files := map[int]*os.File{}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	readers := map[int]*lineReader{}
	n := names{}
	for _, l := range at {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		f := files[l.Segment()]
		if f == nil {
			name := controlFile
			if l.Segment() > 0 {
				name = segmentFile(l.Segment())
			}
			var err error
			if f, err = os.Open(filepath.Join(j.dir, name)); err != nil {
				return err
			}
			files[l.Segment()], readers[l.Segment()] = f, &lineReader{}
		}
		line, err := readers[l.Segment()].at(f, l.Off())
		if err != nil {
			return err
		}
		var r raw
		if err := r.parse(line); err != nil {
			return err
		}
		if string(r.trial) != trial || r.attempt != number {
			return errors.New("the files were changed by somebody else")
		}
		if !yield(r.toEntry(n), nil) {
			return nil
		}
	}
	return nil
}

// pinLocked keeps the segments of these entries from being compressed until unpin.
func (j *Journal) pinLocked(at []admit.Loc) []int {
	var pins []int
	for _, l := range at {
		if s := l.Segment(); s > 0 && (len(pins) == 0 || pins[len(pins)-1] != s) {
			pins = append(pins, s)
			j.pins[s]++
		}
	}
	return pins
}

func (j *Journal) unpin(pins []int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range pins {
		if j.pins[s]--; j.pins[s] == 0 {
			delete(j.pins, s)
		}
	}
}
