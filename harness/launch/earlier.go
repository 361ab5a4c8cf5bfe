package launch

import (
	"encoding/json"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// Earlier sums up the results of a run's earlier processes.
type Earlier struct {
	Scored        int     // trials whose current verdict is a score
	Sum           float64 // sum of the rewards of these trials
	Cost          float64 // US dollars for all attempts, as far as known
	Known, Hidden bool    // some costs are known; some are unknown
}

// earlier reads the journal in dir up to and including the entry numbered last. Scores of trials
// that run again, as reported by again, are not counted.
func earlier(dir string, last int64, again func(trial string, t ledger.Trial) bool) (x Earlier) {
	type standing struct {
		ledger.Trial
		grade ledger.Grade
	}
	trials := map[string]*standing{}
	for e, err := range journal.Control(dir) {
		if err != nil { // damaged lines were reported when the journal was opened
			continue
		}
		if e.Seq > last {
			break
		}
		t := trials[e.Trial]
		if t == nil {
			t = &standing{}
			trials[e.Trial] = t
		}
		l := ledger.Of(&e)
		switch t.Apply(&l) {
		case ledger.Judged, ledger.Decided:
			var v record.Verdict
			if json.Unmarshal(e.Data, &v) == nil {
				t.grade = ledger.GradeOf(&v)
				t.grade.Scores, t.grade.Flags = nil, nil
				x.pay(&v.Usage)
			}
		case ledger.Amended:
			var a record.Amend
			if json.Unmarshal(e.Data, &a) == nil {
				t.grade.Amend(&a)
				t.grade.Scores, t.grade.Flags = nil, nil
			}
		}
	}
	for id, t := range trials {
		if t.Decided && t.grade.Status == record.Scored && !again(id, t.Trial) {
			x.Scored++
			if t.grade.Reward != nil {
				x.Sum += *t.grade.Reward
			}
		}
	}
	return x
}

// pay adds an attempt's usage in the same way as the progress line does.
func (x *Earlier) pay(u *record.Usage) {
	switch {
	case u.Cost != nil:
		x.Cost += *u.Cost
		x.Known = true
	case u.Calls > 0:
		x.Hidden = true
	}
}
