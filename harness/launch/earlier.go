package launch

import (
	"encoding/json"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// Earlier is what earlier processes of a run have come to.
type Earlier struct {
	Scored        int     // trials whose current verdict is a score
	Sum           float64 // of their rewards
	Cost          float64 // US dollars, of all attempts, as far as it is known
	Known, Hidden bool    // some cost is known; some is not
}

// earlier reads the journal in dir up to the entry numbered last. The scores of trials that are
// played again do not count; again says which these are.
func earlier(dir string, last int64, again func(trial string, t ledger.Trial) bool) (x Earlier) {
	type standing struct {
		ledger.Trial
		grade ledger.Grade
	}
	trials := map[string]*standing{}
	for e, err := range journal.Control(dir) {
		if err != nil { // a damaged line was told when the journal was opened
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

// pay counts what an attempt used, as the progress line does.
func (x *Earlier) pay(u *record.Usage) {
	switch {
	case u.Cost != nil:
		x.Cost += *u.Cost
		x.Known = true
	case u.Calls > 0:
		x.Hidden = true
	}
}
