package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"sort"

	"github.com/evalrun/evalrun/harness/record"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
)

// Trial yields the entries of one trial, in order, without reading the other events: it searches
// control.jsonl for the trial, which gives the range of numbers of its attempts. If another process
// is writing, an open attempt is read up to some recent entry. Errors are as for Scan, but gaps in
// the numbers are not detected.
func Trial(dir, trial string) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		control, err := trialControl(dir, trial, yield)
		if err != nil {
			if err != errStopped {
				yield(record.Entry{}, err)
			}
			return
		}
		i := 0
		for _, s := range attemptSpans(control) {
			for e, err := range eventsOf(dir, trial, s.From, s.To) {
				for err == nil && i < len(control) && control[i].Seq < e.Seq {
					if !yield(control[i], nil) {
						return
					}
					i++
				}
				if !yield(e, err) || fatal(err) {
					return
				}
			}
		}
		for _, e := range control[i:] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

var errStopped = errors.New("stopped")

// trialControl reads a trial's entries of control.jsonl. It passes damaged lines to bad.
func trialControl(dir, trial string, bad func(record.Entry, error) bool) ([]record.Entry, error) {
	f, err := os.Open(filepath.Join(dir, controlFile))
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	var out []record.Entry
	in, n := newLines(f, 0), names{}
	for want := needle(trial); ; {
		line, off, err := in.next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("journal: reading %s: %w", controlFile, err)
		}
		if !bytes.Contains(line, want) {
			continue
		}
		var r raw
		if err := r.parse(line); err != nil {
			if !bad(record.Entry{}, &BadLine{File: controlFile, Off: off, Err: err}) {
				return nil, errStopped
			}
			continue
		}
		if err := newer(r.v); err != nil {
			return nil, err
		}
		if string(r.trial) == trial {
			out = append(out, r.toEntry(n))
		}
	}
}

// needle returns a text that every line of a trial contains. Other lines may contain it inside
// their data.
func needle(trial string) []byte { return appendString([]byte(`"trial":`), trial) }

// attemptSpans returns the range of numbers between the first and the last control entry of each
// attempt. The last attempt may be open; then its range has no end.
func attemptSpans(control []record.Entry) []admit.Span {
	var out []admit.Span
	open := false
	for _, e := range control {
		if e.Kind == record.KindAmend || e.Kind == record.KindSpent { // these may also follow a decided attempt
			continue
		}
		open = e.Kind != record.KindVerdict
		if n := len(out); n > 0 && out[n-1].Attempt == e.Attempt {
			out[n-1].To = e.Seq
			continue
		}
		out = append(out, admit.Span{Attempt: e.Attempt, From: e.Seq, To: e.Seq})
	}
	if open {
		out[len(out)-1].To = 1<<63 - 1
	}
	// An attempt of a killed process has events after its last control entry.
	for i := range out[:max(0, len(out)-1)] {
		if out[i].To < out[i+1].From {
			out[i].To = out[i+1].From - 1
		}
	}
	return out
}

// eventsOf yields a trial's entries in the events files with numbers from…to.
func eventsOf(dir, trial string, from, to int64) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		n, err := segmentOf(dir, from)
		if err != nil {
			yield(record.Entry{}, err)
			return
		}
		c := &cursor{dir: dir, segment: n, names: names{}, only: needle(trial), until: to}
		defer c.close()
		if err := c.seek(from); err != nil {
			yield(record.Entry{}, err)
			return
		}
		for {
			e, err := c.next()
			switch {
			case err == io.EOF, err == nil && e.Seq > to:
				return
			case err == nil && (e.Seq < from || e.Trial != trial):
			case !yield(e, err) || fatal(err):
				return
			}
		}
	}
}

// seek positions a segment that is not compressed shortly before the entry numbered seq.
func (c *cursor) seek(seq int64) error {
	if err := c.open(); err != nil {
		if err == io.EOF {
			return nil
		}
		return err
	}
	f, ok := c.closers[0].(*os.File)
	if !ok || len(c.closers) > 1 {
		return nil // a compressed segment must be read from its beginning
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	const step = 64 << 10
	var lr lineReader
	after := func(off int64) (int64, bool) { // returns the number of the first complete line after off
		if off == 0 {
			return 0, true
		}
		line, err := lr.at(f, off)
		if err != nil {
			return 0, false
		}
		next := off + int64(len(line)) + 1
		if line, err = lr.at(f, next); err != nil {
			return 0, false
		}
		var r raw
		if r.parse(line) != nil {
			return 0, false
		}
		return r.seq, true
	}
	n := int(info.Size() / step)
	i := sort.Search(n, func(i int) bool {
		got, ok := after(int64(i+1) * step)
		return !ok || got > seq // if the line is unparsable, start before it
	})
	off := int64(i) * step
	if off == 0 {
		return nil
	}
	line, err := lr.at(f, off)
	if err != nil {
		return nil // then read from the beginning
	}
	off += int64(len(line)) + 1
	if _, err := f.Seek(off, io.SeekStart); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	c.in = newLines(f, off)
	return nil
}

// past yields the entries in the events files for an attempt of a trial that was already decided
// when the journal was opened and may be retried.
func (j *Journal) past(ctx context.Context, trial string, number int, yield func(record.Entry, error) bool) error {
	j.mu.Lock()
	spans := j.index.Spans[trial]
	j.mu.Unlock()
	for _, s := range spans {
		if s.Attempt != number {
			continue
		}
		for e, err := range eventsOf(j.dir, trial, s.From, s.To) {
			if err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if e.Attempt == number && !yield(e, nil) {
				return nil
			}
		}
		return nil
	}
	return record.ErrNotOpen
}
