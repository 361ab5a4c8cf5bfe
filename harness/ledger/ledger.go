// Package ledger implements the fold of a journal's entries into trials: which attempt is open,
// which verdict counts, which evidence may be graded, how many tries were used, what was spent. All
// readers of the journal use these rules: resume, regrade, reports, tables, checks.
//
// A [Trial] is the state of one trial; [Trial.Apply] adds its entries in journal order and reports
// the effect of each. A [Grade] combines a verdict and its amendments. Readers choose their own
// storage, so that a resume holds some 50 bytes per trial and a report only what it prints. The
// package imports only harness/record.
package ledger

import (
	"bytes"

	"github.com/evalrun/evalrun/harness/record"
)

// A Line is the part of an entry that the fold reads. Data must not change while Apply runs.
type Line struct {
	Attempt int
	Fence   int64
	Kind    string
	Data    []byte
}

// Of returns the line of an entry.
func Of(e *record.Entry) Line {
	return Line{Attempt: e.Attempt, Fence: e.Fence, Kind: e.Kind, Data: e.Data}
}

// A Trial is the state of one trial. The zero value is a trial that has not started.
//
//	entry               Open     Decided  Evidence          First    Failed
//	attempt             attempt  no       none or kept (1)  see (2)  see (2)
//	evidence            -        -        its attempt       -        -
//	verdict, not final  none     no       -                 -        +1 of infra, grader (3)
//	verdict, final      none     yes      -                 -        +1 of infra, grader
//	amend               -        -        -                 -        -
//
// (1) An attempt that only grades keeps the evidence of the attempt before it. Any other attempt
// runs the agent again, so earlier evidence must not be graded for it.
//
// (2) An attempt after a score or a skip starts a new series of tries, and so does a rerun. An
// attempt after a failure that was not the agent's continues the series and may reuse its replies.
// An attempt after a final verdict resets Failed to 0.
//
// (3) The first attempt of a series that lost its browser uses up no try. From then on the trial is
// Alone.
type Trial struct {
	Fence    int64 // highest fence seen
	Last     int32 // newest attempt; 0 if none
	First    int32 // first attempt of the current series of tries
	Open     int32 // attempt that started and has no verdict; 0 if none
	Evidence int32 // attempt whose evidence is, or will be, graded; 0 if none
	Failed   int32 // attempts of the series that ended infra or grader
	status   uint8
	end      uint8
	Decided  bool // the newest attempt has a final verdict
	// Alone means that an attempt of the series lost a shared browser; the next one gets its own.
	Alone bool
}

// Status returns the status of the newest verdict, including amendments; "" before the first.
func (t *Trial) Status() record.Status { return statuses[t.status] }

// End returns the end of the newest verdict, including amendments.
func (t *Trial) End() record.End { return ends[t.end] }

// A Change is the effect of an entry on its trial.
type Change uint8

// Effects of an entry. An entry of an unknown kind has the effect None.
const (
	None     Change = iota
	Began           // a new attempt started
	Rejoined        // the open attempt continues under a newer lease
	Kept            // evidence of the open attempt was added
	Judged          // the attempt ended and the trial is undecided
	Decided         // the attempt ended and the trial is decided
	Amended         // the decided trial's grade was corrected
)

// Apply adds the next entry of the trial.
func (t *Trial) Apply(l *Line) Change {
	t.Fence = max(t.Fence, l.Fence)
	n := int32(l.Attempt)
	fresh := n > t.Last // true even if the entry that started the attempt was lost
	t.Last = max(t.Last, n)
	switch l.Kind {
	case record.KindAttempt:
		if !fresh && t.Open == n {
			return Rejoined
		}
		if t.Decided { // a person decided to retry it: it gets all its tries again
			t.Failed, t.Alone = 0, false
		}
		if t.First == 0 || t.Decided && !Reopens(t.Status()) || Reruns(l.Data) {
			t.First = n
		}
		if !Regrades(l.Data) {
			t.Evidence = 0
		}
		t.Open, t.Decided = n, false
		return Began
	case record.KindEvidence:
		t.Evidence = n
		return Kept
	case record.KindVerdict:
		v := ReadOutcome(l.Data)
		if t.Open == n {
			t.Open = 0
		}
		t.set(v.Status, v.End)
		switch lost := v.Status == record.Infra &&
			bytes.Contains(l.Data, []byte(`"class":"`+record.ClassBrowser+`"`)); {
		case lost && !t.Alone:
			t.Alone = true
		case v.Status == record.Infra, v.Status == record.Grader:
			t.Failed++
		}
		if t.Decided = v.Final; !v.Final {
			return Judged
		}
		return Decided
	case record.KindAmend:
		if t.Decided && bytes.Contains(l.Data, []byte(`"status"`)) {
			if v := slowOutcome(l.Data); v.Status != "" {
				t.set(v.Status, v.End)
			}
		}
		return Amended
	}
	return None
}

func (t *Trial) set(s record.Status, e record.End) {
	t.status, t.end = place(statuses, s), place(ends, e)
}

// Prior returns the attempts of the series before the open one, newest first. A new attempt may
// reuse the replies they paid for.
func (t *Trial) Prior() []int {
	var out []int
	for n := t.Last; n >= t.First && n > 0; n-- {
		if n != t.Open {
			out = append(out, int(n))
		}
	}
	return out
}

// Reopens reports whether a trial decided with this status may be retried without losing a score:
// its attempts failed, and the agent was not at fault. The replies they paid for are kept.
func Reopens(s record.Status) bool {
	return s == record.Infra || s == record.Provider || s == record.Grader
}

// Regrades reports whether an attempt entry's data is of an attempt that only grades. The data is
// written by encoding/json, which escapes quotes inside strings, so the search is exact.
func Regrades(attempt []byte) bool { return bytes.Contains(attempt, []byte(`"regrade":true`)) }

// Reruns reports whether an attempt entry's data is of one that runs a decided trial again.
func Reruns(attempt []byte) bool { return bytes.Contains(attempt, []byte(`"why":"rerun"`)) }

// Retries reports whether an attempt entry's data is of one that used a retry of the run's budget.
func Retries(attempt []byte) bool { return bytes.Contains(attempt, []byte(`"why":"retry"`)) }
