package ledger

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/evalrun/evalrun/harness/record"
)

func data(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTrial folds small journals of one trial and checks the state after each entry.
func TestTrial(t *testing.T) {
	begin := func(why string, regrade bool) func(int) Line {
		return func(n int) Line {
			d := data(t, record.Attempt{Attempt: n, Why: why, Regrade: regrade, Task: `"regrade":true "why":"rerun"`})
			return Line{Attempt: n, Fence: int64(n), Kind: record.KindAttempt, Data: d}
		}
	}
	verdict := func(final bool, s record.Status, e record.End) func(int) Line {
		return func(n int) Line {
			return Line{Attempt: n, Fence: int64(n), Kind: record.KindVerdict,
				Data: data(t, record.Verdict{Final: final, Status: s, End: e})}
		}
	}
	play, retry, rerun, regrade := begin("", false), begin("retry", false), begin("rerun", false), begin("resume", true)
	lost := func(n int) Line {
		v := record.Verdict{Status: record.Infra,
			Error: &record.Fault{Status: record.Infra, Class: record.ClassBrowser}}
		return Line{Attempt: n, Fence: int64(n), Kind: record.KindVerdict, Data: data(t, v)}
	}
	evidence := func(n int) Line {
		return Line{Attempt: n, Fence: int64(n), Kind: record.KindEvidence, Data: []byte(`{}`)}
	}
	amend := func(a record.Amend) func(int) Line {
		return func(n int) Line { return Line{Attempt: n, Kind: record.KindAmend, Data: data(t, a)} }
	}
	type step struct {
		line func(int) Line
		n    int
	}
	for _, c := range []struct {
		name  string
		steps []step
		want  Trial
		prior []int
	}{
		{"begun", []step{{play, 1}}, Trial{Fence: 1, Last: 1, First: 1, Open: 1}, nil},
		{"scored", []step{{play, 1}, {evidence, 1}, {verdict(true, record.Scored, record.Answered), 1}},
			Trial{Fence: 1, Last: 1, First: 1, Evidence: 1, Decided: true, status: 1, end: 1}, []int{1}},
		{"retried after infra", []step{{play, 1}, {verdict(false, record.Infra, ""), 1}, {retry, 2}},
			Trial{Fence: 2, Last: 2, First: 1, Open: 2, Failed: 1, status: 2}, []int{1}},
		{"the first lost browser uses up no try", []step{{play, 1}, {lost, 1}, {retry, 2}},
			Trial{Fence: 2, Last: 2, First: 1, Open: 2, Alone: true, status: 2}, []int{1}},
		{"the second does", []step{{play, 1}, {lost, 1}, {retry, 2}, {lost, 2}},
			Trial{Fence: 2, Last: 2, First: 1, Failed: 1, Alone: true, status: 2}, []int{2, 1}},
		{"a provider's failures use up no tries",
			[]step{{play, 1}, {verdict(false, record.Provider, ""), 1}, {retry, 2},
				{verdict(true, record.Provider, ""), 2}},
			Trial{Fence: 2, Last: 2, First: 1, Decided: true, status: 3}, []int{2, 1}},
		{"tried again after a provider's failure",
			[]step{{play, 1}, {verdict(true, record.Provider, ""), 1}, {play, 2}},
			Trial{Fence: 2, Last: 2, First: 1, Open: 2, status: 3}, []int{1}},
		{"all tries again after a final failure",
			[]step{{play, 1}, {verdict(false, record.Infra, ""), 1}, {retry, 2}, {verdict(true, record.Infra, ""), 2},
				{play, 3}},
			Trial{Fence: 3, Last: 3, First: 1, Open: 3, status: 2}, []int{2, 1}},
		{"killed between closing and the next attempt", []step{{play, 1}, {verdict(false, record.Canceled, ""), 1}},
			Trial{Fence: 1, Last: 1, First: 1, status: 5}, []int{1}},
		{"a rerun does not grade what is old",
			[]step{{play, 1}, {evidence, 1}, {verdict(true, record.Grader, ""), 1}, {rerun, 2}},
			Trial{Fence: 2, Last: 2, First: 2, Open: 2, status: 4}, nil},
		{"grading goes on with the evidence",
			[]step{{play, 1}, {evidence, 1}, {verdict(false, record.Grader, ""), 1}, {regrade, 2}},
			Trial{Fence: 2, Last: 2, First: 1, Open: 2, Failed: 1, Evidence: 1, status: 4}, []int{1}},
		{"an attempt that plays anew forgets the evidence",
			[]step{{play, 1}, {evidence, 1}, {verdict(false, record.Grader, ""), 1}, {retry, 2}},
			Trial{Fence: 2, Last: 2, First: 1, Open: 2, Failed: 1, status: 4}, []int{1}},
		{"a new series after a score", []step{{play, 1}, {verdict(true, record.Scored, record.Broke), 1}, {rerun, 2}},
			Trial{Fence: 2, Last: 2, First: 2, Open: 2, status: 1, end: 4}, nil},
		{"amended", []step{{play, 1}, {verdict(true, record.Grader, ""), 1},
			{amend(record.Amend{Status: record.Scored, End: record.Limit}), 1}},
			Trial{Fence: 1, Last: 1, First: 1, Failed: 1, Decided: true, status: 1, end: 3}, []int{1}},
		{"an amendment of the score alone",
			[]step{{play, 1}, {verdict(true, record.Scored, record.Answered), 1},
				{amend(record.Amend{Why: `"status"`}), 1}},
			Trial{Fence: 1, Last: 1, First: 1, Decided: true, status: 1, end: 1}, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got Trial
			for _, s := range c.steps {
				l := s.line(s.n)
				got.Apply(&l)
			}
			if got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if p := got.Prior(); !reflect.DeepEqual(p, c.prior) {
				t.Errorf("prior %v, want %v", p, c.prior)
			}
		})
	}
}

// TestReadOutcome compares the fast parser with encoding/json.
func TestReadOutcome(t *testing.T) {
	texts := []string{"", `"end":"broke"`, `\`, `","end":"`}
	for _, final := range []bool{true, false} {
		for _, s := range append(statuses, "other", `a"b`) {
			for _, e := range append(ends, "other") {
				for _, text := range texts {
					v := record.Verdict{Final: final, Status: s, End: e, Answer: text}
					b := data(t, v)
					var want Outcome
					if err := json.Unmarshal(b, &want); err != nil {
						t.Fatal(err)
					}
					got := ReadOutcome(b)
					if got.Final != want.Final || place(statuses, got.Status) != place(statuses, want.Status) ||
						place(ends, got.End) != place(ends, want.End) {
						t.Errorf("%s: %+v, want %+v", b, got, want)
					}
				}
			}
		}
	}
	if got := ReadOutcome([]byte(`{"end":"limit","status":"scored","final":true}`)); got != (Outcome{true,
		record.Scored, record.Limit}) {
		t.Errorf("another order: %+v", got)
	}
	if got := ReadOutcome([]byte(`{"final":true,"status":7}`)); got != (Outcome{}) {
		t.Errorf("not a verdict: %+v", got)
	}
}

func TestGrade(t *testing.T) {
	one, half := 1.0, 0.5
	g := GradeOf(&record.Verdict{Status: record.Grader, Reward: &one})
	if g.Reward != nil {
		t.Error("a trial without a score has a reward")
	}
	was := g
	g.Amend(&record.Amend{Reward: &half, Status: record.Scored, End: record.Limit, Limit: "turns",
		Flags: []string{"x"}})
	if g.Status != record.Scored || g.End != record.Limit || g.Limit != "turns" || *g.Reward != half || g.Same(was) {
		t.Errorf("%+v", g)
	}
	is := g
	g.Amend(&record.Amend{Reward: &half, Flags: []string{"x"}})
	if !g.Same(is) || g.End != record.Limit {
		t.Error("an amendment that says the same changed something: " + fmt.Sprint(g))
	}
}

func TestComplete(t *testing.T) {
	first, last := record.Evidence{}, record.Evidence{Last: true}
	for _, tt := range []struct {
		name   string
		v      record.Verdict
		stages []record.Evidence
		want   bool
	}{
		{"scored", record.Verdict{Status: record.Scored, Stages: 1}, []record.Evidence{first}, true},
		{"nothing kept", record.Verdict{Status: record.Scored, Stages: 1}, nil, false},
		{"the agent took its machine down in its second stage", record.Verdict{Status: record.Scored},
			[]record.Evidence{first}, false},
		{"not graded", record.Verdict{Status: record.Grader, Stages: 1}, []record.Evidence{first}, true},
		{"not played to the end", record.Verdict{Status: record.Infra}, []record.Evidence{first}, false},
		{"an old form", record.Verdict{Status: record.Grader}, []record.Evidence{last}, true},
	} {
		if got := Complete(&tt.v, tt.stages); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
