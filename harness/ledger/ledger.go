// Package ledger is the one fold of a journal's entries into trials: which attempt is open, which
// verdict counts, which evidence may be graded, how many tries were used, what was spent. Everybody
// who asks the journal such a question uses these rules: resume, regrade, reports, tables, checks.
//
// A [Trial] is the state of one trial; [Trial.Apply] takes in its entries in journal order and says
// what each did. A [Grade] is what a verdict and its amendments come to. Readers keep their own
// storage, so that a resume holds some 50 bytes a trial and a report what it prints. The package
// imports harness/record only.
package ledger

import (
	"bytes"

	"github.com/evalrun/evalrun/harness/record"
)

// A Line is what the fold looks at of an entry. Data must not change while Apply runs.
type Line struct {
	Attempt int
	Fence   int64
	Kind    string
	Data    []byte
}

// Of is the line of an entry.
func Of(e *record.Entry) Line {
	return Line{Attempt: e.Attempt, Fence: e.Fence, Kind: e.Kind, Data: e.Data}
}

// A Trial is the state of one trial. The zero value is a trial that was never begun.
//
//	entry                     Open      Decided  Evidence           First               Failed
//	attempt                   attempt   no       none, or kept (1)  see (2)             see (2)
//	evidence                  -         -        its attempt        -                   -
//	verdict, not final        none      no       -                  -                   +1 of infra, grader (3)
//	verdict, final            none      yes      -                  -                   +1 of infra, grader
//	amend                     -         -        -                  -                   -
//
// (1) An attempt that only grades keeps the evidence of the attempt before it. Any other attempt
// plays anew, and what an earlier one left must not be graded in its place.
// (2) An attempt after a score or a skip begins a new series of tries, and so does a rerun. An
// attempt after a failure that was not the agent's goes on with the series, and may use its
// replies. Failed is 0 again after every final verdict.
// (3) The first of a series that lost its browser uses up no try: from then on the trial is Alone.
type Trial struct {
	Fence    int64 // the newest seen
	Last     int32 // the newest attempt; 0: none
	First    int32 // the first attempt of the current series of tries
	Open     int32 // the attempt that began and has no verdict; 0: none
	Evidence int32 // the attempt whose evidence is, or will be, graded; 0: none
	Failed   int32 // attempts of the series that ended infra or grader
	status   uint8
	end      uint8
	Decided  bool // the newest attempt has a final verdict
	Alone    bool // an attempt of the series lost a browser that it shared: the next has one of its own
}

// Status is that of the newest verdict, amendments included; "" before the first.
func (t *Trial) Status() record.Status { return statuses[t.status] }

// End is that of the newest verdict, amendments included.
func (t *Trial) End() record.End { return ends[t.end] }

// A Change is what an entry did to its trial.
type Change uint8

// Changes. An entry of a kind that the fold does not know makes none.
const (
	None     Change = iota
	Began           // a new attempt began
	Rejoined        // the open attempt goes on under a newer lease
	Kept            // evidence of the open attempt was added
	Judged          // the attempt ended, and the trial is not decided
	Decided         // the attempt ended, and the trial is decided
	Amended         // the decided trial's grade was corrected
)

// Apply takes in the next entry of the trial.
func (t *Trial) Apply(l *Line) Change {
	t.Fence = max(t.Fence, l.Fence)
	n := int32(l.Attempt)
	fresh := n > t.Last // also where the entry that began it was lost
	t.Last = max(t.Last, n)
	switch l.Kind {
	case record.KindAttempt:
		if !fresh && t.Open == n {
			return Rejoined
		}
		if t.Decided { // somebody has looked: it has all its tries again
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

// Prior are the attempts of the series before the open one, the newest first: those whose paid
// replies a new attempt may use.
func (t *Trial) Prior() []int {
	var out []int
	for n := t.Last; n >= t.First && n > 0; n-- {
		if n != t.Open {
			out = append(out, int(n))
		}
	}
	return out
}

// Reopens reports whether a trial that was decided with this status may be tried again without
// losing a score: its attempts failed, and the agent was not at fault. The replies that they paid
// for are kept.
func Reopens(s record.Status) bool {
	return s == record.Infra || s == record.Provider || s == record.Grader
}

// Regrades reports whether an attempt entry's data belongs to one that only grades. The data is
// written by encoding/json, and a quote inside of a string is escaped there, so a search is exact.
func Regrades(attempt []byte) bool { return bytes.Contains(attempt, []byte(`"regrade":true`)) }

// Reruns reports whether an attempt entry's data belongs to one that plays a decided trial anew.
func Reruns(attempt []byte) bool { return bytes.Contains(attempt, []byte(`"why":"rerun"`)) }

// Retries reports whether an attempt entry's data belongs to one that used up a retry of the run.
func Retries(attempt []byte) bool { return bytes.Contains(attempt, []byte(`"why":"retry"`)) }
