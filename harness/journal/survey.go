package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"

	"github.com/evalrun/evalrun/harness/journal/internal/admit"
)

// A survey is the result of examining the journal's files.
type survey struct {
	dir    string
	known  []Damage
	mark   *mark // nil if there is none
	accept bool  // durable data may be given up

	state   *State
	open    map[string]*opened
	decided map[string]int64
	control fileSurvey
	seqs    []byte // numbers in control.jsonl, encoded as differences
	events  []*fileSurvey
	active  segment
	base    int64 // numbers must be consecutive from here
}

// An opened is a trial without a final verdict.
type opened struct {
	fence int64
	last  int
	now   *begun   // nil between two attempts
	cut   []*begun // attempts that did not decide it
}

// A begun is an attempt whose entries may still be read.
type begun struct {
	number  int
	first   int64
	entries []located
}

// find returns one of the trial's attempts, or nil.
func (o *opened) find(number int) *begun {
	if o.now != nil && o.now.number == number {
		return o.now
	}
	for _, b := range o.cut {
		if b.number == number {
			return b
		}
	}
	return nil
}

// attempt converts b for the index.
func (b *begun) attempt() *admit.Attempt {
	slices.SortFunc(b.entries, func(x, y located) int { return int(x.seq - y.seq) })
	a := &admit.Attempt{Number: b.number, Count: len(b.entries)}
	for _, e := range b.entries {
		a.At = append(a.At, e.loc)
	}
	return a
}

type located struct {
	seq int64
	loc admit.Loc
}

type fileSurvey struct {
	name  string
	n     int // number of the segment; 0 means control.jsonl
	first int64
	last  int64
	good  int64 // offset after the last good line
	tail  place // place of that line
	size  int64
	runs  []run
	bad   []badRange
}

// A run is a range of consecutive numbers in a segment.
type run struct{ from, to, off int64 }

// A badRange is an unparsable part of a file.
type badRange struct {
	from, to     int64 // offsets in bytes
	after, until int64 // the good numbers around it; until is 0 at the end of the file
	whole        bool  // it has complete lines
}

func (s *survey) read() error {
	s.state, s.open, s.decided = newState(s.dir), map[string]*opened{}, map[string]int64{}
	last := int64(0)
	s.control = fileSurvey{name: controlFile}
	err := s.control.read(s.dir, func(r *raw, off int64) {
		s.seqs = binary.AppendUvarint(s.seqs, uint64(r.seq-last))
		last = r.seq
		s.state.apply(r, off)
		s.track(r, off)
	})
	if err != nil {
		return err
	}
	segs, err := segments(s.dir)
	if err != nil {
		return err
	}
	s.active = segment{n: 1}
	if n := len(segs); n > 0 {
		s.active = segs[n-1]
		if s.active.packed {
			s.active = segment{n: s.active.n + 1}
		}
	}
	need := s.control.last + 1
	for _, o := range s.open {
		if o.now != nil {
			need = min(need, o.now.first)
		}
		for _, b := range o.cut {
			need = min(need, b.first)
		}
	}
	dense := true
	for _, seg := range slices.Backward(segs) {
		if seg.packed { // holds no entry of an open attempt
			dense = false
			continue
		}
		f := &fileSurvey{name: segmentFile(seg.n), n: seg.n}
		if err := f.read(s.dir, func(r *raw, off int64) {
			if o := s.open[string(r.trial)]; o != nil {
				if b := o.find(r.attempt); b != nil && r.seq > b.first {
					b.entries = append(b.entries, located{r.seq, admit.At(f.n, off)})
				}
			}
			if n := len(f.runs); n > 0 && f.runs[n-1].to+1 == r.seq {
				f.runs[n-1].to++
			} else {
				f.runs = append(f.runs, run{r.seq, r.seq, off})
			}
		}); err != nil {
			return err
		}
		s.events = append(s.events, f)
		if dense && f.first > 0 {
			s.base = f.first
		}
		if f.first > 0 && f.first <= need && !s.accept { // with accept, all damage must be listed
			break
		}
	}
	slices.Reverse(s.events)
	if len(s.events) == len(segs) {
		s.base = 1
	}
	return nil
}

// track keeps the open trials up to date.
func (s *survey) track(r *raw, off int64) {
	id := string(r.trial)
	o := s.open[id]
	switch string(r.kind) {
	case record.KindAmend:
		return
	case record.KindAttempt:
		if o == nil {
			o = &opened{fence: s.decided[id]}
			delete(s.decided, id)
			s.open[id] = o
		}
		if o.now == nil || o.now.number != r.attempt {
			if o.now != nil {
				o.cut = append(o.cut, o.now)
			}
			o.now = &begun{number: r.attempt, first: r.seq}
		}
		o.last = max(o.last, r.attempt)
	}
	if o != nil {
		o.fence = max(o.fence, r.fence)
		if b := o.now; b != nil && b.number == r.attempt {
			b.entries = append(b.entries, located{r.seq, admit.At(0, off)})
		}
	}
	if string(r.kind) == record.KindVerdict {
		v := ledger.ReadOutcome(r.data)
		if o != nil && o.now != nil && o.now.number == r.attempt {
			o.cut = append(o.cut, o.now)
			o.now = nil
		}
		if v.Final {
			fence := r.fence
			if o != nil {
				fence = max(fence, o.fence)
			}
			delete(s.open, id)
			s.decided[id] = fence
		}
	}
}

// read reads the lines of a file.
func (f *fileSurvey) read(dir string, good func(r *raw, off int64)) error {
	file, err := os.Open(filepath.Join(dir, f.name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer file.Close()
	in := newLines(file, 0)
	var bad *badRange
	for {
		line, off, err := in.next()
		if err == io.EOF {
			f.size = off + in.rest()
			if f.size > f.good {
				f.bad = append(f.bad, badRange{from: f.good, to: f.size, after: f.last, whole: bad != nil})
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("journal: reading %s: %w", f.name, err)
		}
		var r raw
		if err := r.parse(line); err != nil || r.seq <= f.last {
			if bad == nil {
				bad = &badRange{from: off, after: f.last, whole: true}
			}
			continue
		}
		if err := newer(r.v); err != nil {
			return err
		}
		if bad != nil {
			bad.to, bad.until = off, r.seq
			f.bad = append(f.bad, *bad)
			bad = nil
		}
		good(&r, off)
		if f.first == 0 {
			f.first = r.seq
		}
		f.tail = placeOf(f.n, r.seq, off, line)
		f.last, f.good = r.seq, f.tail.End
	}
}
