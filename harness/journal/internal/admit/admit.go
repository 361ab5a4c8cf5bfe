// Package admit implements the rules by which a journal accepts or refuses entries. The journal on
// disk and the one in memory (journaltest) share them.
package admit

import (
	"fmt"
	"hash/maphash"
	"iter"
	"time"

	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// An Index decides which entries are accepted. It holds the open trials and, for each decided one,
// only a hash with its fence (16 bytes), so that a worker that lost its lease long ago cannot start
// the trial again.
//
//	                 unknown trial  open, older fence  open, this attempt     open, other attempt  decided
//	attempt          opens          ErrFenced          newer fence: continues higher: opens        newer fence: opens
//	amend            ErrNotOpen     ErrNotOpen         ErrNotOpen             ErrNotOpen           accepted, unless fenced
//	spent            ErrNotOpen     ErrFenced          accepted               ErrNotOpen           accepted, unless fenced
//	verdict, final   ErrFenced      ErrFenced          decides                ErrNotOpen           ErrFenced
//	anything else    ErrFenced      ErrFenced          accepted               ErrNotOpen           ErrFenced
type Index struct {
	Open    map[string]*Trial
	decided map[uint64]int64
	seed    maphash.Seed
	// Spans holds ended attempts of trials that are not closed, as found when the journal was
	// opened.
	Spans map[string][]Span
}

// A Span is the range of entries of an ended attempt.
type Span struct {
	Attempt  int
	From, To int64 // numbers of its first entry and of its verdict
}

// A Trial is an undecided trial.
type Trial struct {
	Fence int64
	Last  int      // its newest attempt
	Now   *Attempt // nil between two attempts
	// Cut holds earlier attempts that did not decide the trial. The next attempt reuses the replies
	// they paid for, so they can be read until the trial is decided.
	Cut []*Attempt
}

// An Attempt is an attempt that has no verdict yet or did not decide its trial.
type Attempt struct {
	Number int
	Count  int   // number of accepted entries
	At     []Loc // locations of the entries written so far
	Closed bool
}

// New returns the index of an empty journal.
func New() *Index {
	return &Index{Open: map[string]*Trial{}, decided: map[uint64]int64{}, seed: maphash.MakeSeed()}
}

// Decide marks a trial as decided under a fence.
func (x *Index) Decide(id string, fence int64) { x.decided[x.hash(id)] = fence }

func (x *Index) hash(id string) uint64 { return maphash.String(x.seed, id) }

// Admit accepts e or returns why it is refused. The attempt is nil if the entry belongs to none
// (amend, or spent of a decided trial).
func (x *Index) Admit(e *record.Entry) (*Attempt, error) {
	if e.Kind == "" || e.Trial == "" || e.Attempt < 0 {
		return nil, fmt.Errorf("journal: an entry needs a kind and a trial (kind %q, trial %q, attempt %d)", e.Kind,
			e.Trial, e.Attempt)
	}
	t := x.Open[e.Trial]
	if e.Kind == record.KindAmend || e.Kind == record.KindSpent && t == nil {
		fence, ok := x.decided[x.hash(e.Trial)]
		switch {
		case !ok:
			return nil, refuse(record.ErrNotOpen, e, "the trial is not decided")
		case e.Fence != 0 && e.Fence < fence:
			return nil, refuse(record.ErrFenced, e, "")
		}
		return nil, nil
	}
	if e.Kind == record.KindAttempt {
		if e.Attempt == 0 {
			return nil, fmt.Errorf("journal: attempts of trial %s are numbered from 1", e.Trial)
		}
		return x.begin(t, e)
	}
	switch {
	case t == nil || e.Fence < t.Fence:
		return nil, refuse(record.ErrFenced, e, "")
	case t.Now == nil || t.Now.Number != e.Attempt:
		return nil, refuse(record.ErrNotOpen, e, "")
	}
	t.Fence = e.Fence
	a := t.Now
	a.Count++
	if e.Kind == record.KindVerdict {
		x.end(e.Trial, t, ledger.ReadOutcome(e.Data))
	}
	return a, nil
}

func (x *Index) begin(t *Trial, e *record.Entry) (*Attempt, error) {
	if t == nil {
		h := x.hash(e.Trial)
		if fence, ok := x.decided[h]; ok {
			if e.Fence <= fence {
				return nil, refuse(record.ErrFenced, e, "the trial is decided")
			}
			delete(x.decided, h) // a rerun
		}
		t = &Trial{}
		x.Open[e.Trial] = t
	}
	switch {
	case e.Fence < t.Fence:
		return nil, refuse(record.ErrFenced, e, "")
	case t.Now != nil && t.Now.Number == e.Attempt && e.Fence > t.Fence:
		// The attempt continues under a new lease.
	case e.Attempt <= t.Last:
		return nil, refuse(record.ErrNotOpen, e, fmt.Sprintf("attempt %d has begun already", t.Last))
	default:
		if t.Now != nil {
			t.Cut = append(t.Cut, t.Now)
		}
		t.Now = &Attempt{Number: e.Attempt}
	}
	t.Fence, t.Last = e.Fence, e.Attempt
	t.Now.Count++
	return t.Now, nil
}

func (x *Index) end(id string, t *Trial, v ledger.Outcome) {
	t.Cut = append(t.Cut, t.Now)
	t.Now = nil
	if v.Final {
		for _, a := range t.Cut {
			a.drop()
		}
		if v.Closes() {
			delete(x.Spans, id)
		}
		delete(x.Open, id)
		x.Decide(id, t.Fence)
	}
}

// Attempts yields the attempts of a trial whose entries are kept.
func (t *Trial) Attempts() iter.Seq[*Attempt] {
	return func(yield func(*Attempt) bool) {
		for _, a := range t.Cut {
			if !yield(a) {
				return
			}
		}
		if t.Now != nil {
			yield(t.Now)
		}
	}
}

// Find returns an attempt that is open or that ended without deciding its trial. It returns nil if
// there is none.
func (x *Index) Find(id string, number int) *Attempt {
	if t := x.Open[id]; t != nil {
		for a := range t.Attempts() {
			if a.Number == number {
				return a
			}
		}
	}
	return nil
}

func (a *Attempt) drop() { a.Closed, a.At = true, nil }

func refuse(err error, e *record.Entry, why string) error {
	if why != "" {
		why = " (" + why + ")"
	}
	return fmt.Errorf("journal: %s of trial %s, attempt %d, fence %d%s: %w", e.Kind, e.Trial, e.Attempt, e.Fence, why,
		err)
}

// A Loc is the location of a line: a segment of events (0 is control.jsonl) and an offset in it.
type Loc uint64

// At returns the location with this segment and offset.
func At(segment int, off int64) Loc { return Loc(segment)<<40 | Loc(off) }

func (l Loc) Segment() int { return int(l >> 40) }
func (l Loc) Off() int64   { return int64(l & (1<<40 - 1)) }

// MaxData is the largest data of one entry, in bytes. Larger data must be stored in a blob.
const MaxData = 64 << 20

// Complete validates e and sets the fields that the journal sets, except the number.
func Complete(e *record.Entry) error {
	if len(e.Data) > MaxData {
		return fmt.Errorf("journal: %s of trial %s has %d bytes of data, more than %d: put it in as a blob", e.Kind,
			e.Trial, len(e.Data), MaxData)
	}
	e.V = record.Version
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC().Truncate(time.Microsecond)
	if len(e.Data) == 0 {
		e.Data = []byte("null")
	}
	return nil
}

// IsControl reports whether entries of a kind go to control.jsonl. These are the entries that a
// resume needs; none is large.
func IsControl(kind string) bool {
	switch kind {
	case record.KindAttempt, record.KindStage, record.KindEvidence, record.KindResult, record.KindVerdict,
		record.KindAmend, record.KindSpent:
		return true
	}
	return false
}
