package journal

import (
	"fmt"
	"hash/maphash"
	"iter"

	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// An index says which entries may come. It holds the trials that are open, and of each decided one
// just a hash with its fence (16 bytes), so that a worker that lost its lease long ago cannot begin
// the trial once more.
//
//	                 trial not known   open, older fence   open, this attempt   open, other attempt   decided
//	attempt          opens             ErrFenced           newer fence: goes on higher: opens         newer fence: opens
//	amend            ErrNotOpen        ErrNotOpen          ErrNotOpen           ErrNotOpen            taken, unless fenced
//	spent            ErrNotOpen        ErrFenced           taken                ErrNotOpen            taken, unless fenced
//	verdict, final   ErrFenced         ErrFenced           decides              ErrNotOpen            ErrFenced
//	anything else    ErrFenced         ErrFenced           taken                ErrNotOpen            ErrFenced
type index struct {
	open    map[string]*trial
	decided map[uint64]int64
	seed    maphash.Seed
	// spans are ended attempts, found when the journal was opened, of trials that are not closed.
	spans map[string][]span
}

// A trial that is not decided.
type trial struct {
	fence int64
	last  int      // its newest attempt
	now   *attempt // nil between two attempts
	// cut are earlier attempts that did not decide the trial: the next attempt asks for the replies
	// that they paid for, so they can be read until the trial is decided.
	cut []*attempt
}

// An attempt that has no verdict yet, or did not decide its trial.
type attempt struct {
	number int
	count  int   // entries taken
	at     []loc // where they are, as far as they are written
	closed bool
}

func newIndex() *index {
	return &index{open: map[string]*trial{}, decided: map[uint64]int64{}, seed: maphash.MakeSeed()}
}

func (x *index) hash(id string) uint64 { return maphash.String(x.seed, id) }

// admit takes e in, or says why not. A nil attempt means that the entry belongs to none (amend,
// spent of a decided trial).
func (x *index) admit(e *record.Entry) (*attempt, error) {
	if e.Kind == "" || e.Trial == "" || e.Attempt < 0 {
		return nil, fmt.Errorf("journal: an entry needs a kind and a trial (kind %q, trial %q, attempt %d)", e.Kind, e.Trial, e.Attempt)
	}
	t := x.open[e.Trial]
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
	case t == nil || e.Fence < t.fence:
		return nil, refuse(record.ErrFenced, e, "")
	case t.now == nil || t.now.number != e.Attempt:
		return nil, refuse(record.ErrNotOpen, e, "")
	}
	t.fence = e.Fence
	a := t.now
	a.count++
	if e.Kind == record.KindVerdict {
		x.end(e.Trial, t, ledger.ReadOutcome(e.Data))
	}
	return a, nil
}

func (x *index) begin(t *trial, e *record.Entry) (*attempt, error) {
	if t == nil {
		h := x.hash(e.Trial)
		if fence, ok := x.decided[h]; ok {
			if e.Fence <= fence {
				return nil, refuse(record.ErrFenced, e, "the trial is decided")
			}
			delete(x.decided, h) // a rerun
		}
		t = &trial{}
		x.open[e.Trial] = t
	}
	switch {
	case e.Fence < t.fence:
		return nil, refuse(record.ErrFenced, e, "")
	case t.now != nil && t.now.number == e.Attempt && e.Fence > t.fence:
		// Taken up again under a new lease: it goes on where it was.
	case e.Attempt <= t.last:
		return nil, refuse(record.ErrNotOpen, e, fmt.Sprintf("attempt %d has begun already", t.last))
	default:
		if t.now != nil {
			t.cut = append(t.cut, t.now)
		}
		t.now = &attempt{number: e.Attempt}
	}
	t.fence, t.last = e.Fence, e.Attempt
	t.now.count++
	return t.now, nil
}

func (x *index) end(id string, t *trial, v ledger.Outcome) {
	t.cut = append(t.cut, t.now)
	t.now = nil
	if v.Final {
		for _, a := range t.cut {
			a.drop()
		}
		if v.Closes() {
			delete(x.spans, id)
		}
		delete(x.open, id)
		x.decided[x.hash(id)] = t.fence
	}
}

// attempts yields those of a trial whose entries are kept.
func (t *trial) attempts() iter.Seq[*attempt] {
	return func(yield func(*attempt) bool) {
		for _, a := range t.cut {
			if !yield(a) {
				return
			}
		}
		if t.now != nil {
			yield(t.now)
		}
	}
}

// find returns an attempt that is open, or ended without deciding its trial.
func (x *index) find(id string, number int) *attempt {
	if t := x.open[id]; t != nil {
		for a := range t.attempts() {
			if a.number == number {
				return a
			}
		}
	}
	return nil
}

func (a *attempt) drop() { a.closed, a.at = true, nil }

func refuse(err error, e *record.Entry, why string) error {
	if why != "" {
		why = " (" + why + ")"
	}
	return fmt.Errorf("journal: %s of trial %s, attempt %d, fence %d%s: %w", e.Kind, e.Trial, e.Attempt, e.Fence, why, err)
}

// A loc is where a line begins: a segment of events (0 is control.jsonl) and an offset in it.
type loc uint64

func at(segment int, off int64) loc { return loc(segment)<<40 | loc(off) }

func (l loc) segment() int { return int(l >> 40) }
func (l loc) off() int64   { return int64(l & (1<<40 - 1)) }

// isControl reports whether entries of a kind go to control.jsonl: what a resume needs, and nothing
// large.
func isControl(kind string) bool {
	switch kind {
	case record.KindAttempt, record.KindStage, record.KindEvidence, record.KindResult, record.KindVerdict, record.KindAmend, record.KindSpent:
		return true
	}
	return false
}
