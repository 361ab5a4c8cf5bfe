package launch

import (
	"encoding/json"
	"testing"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
)

// A resumed run's progress starts with the current scores and the cost of all attempts.
func TestEarlier(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(dir, journal.Options{Ballast: -1, LowWater: -1, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	put := func(trial string, attempt int, kind string, v any) {
		t.Helper()
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Append(t.Context(), record.Entry{Trial: trial, Attempt: attempt, Fence: int64(attempt), Kind: kind,
			Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	cost := func(usd float64) record.Usage { return record.Usage{Calls: 1, Cost: &usd} }
	verdict := func(trial string, attempt int, final bool, s record.Status, reward float64, u record.Usage) {
		t.Helper()
		put(trial, attempt, record.KindAttempt, record.Attempt{Attempt: attempt})
		put(trial, attempt, record.KindVerdict, record.Verdict{Final: final, Status: s, Reward: &reward, Usage: u})
	}
	verdict("a", 1, false, record.Infra, 0, cost(1))
	verdict("a", 2, true, record.Scored, 0.25, cost(2))
	verdict("b", 1, true, record.Scored, 0, cost(4))
	one := 1.0
	put("b", 1, record.KindAmend, record.Amend{Why: "regraded", Reward: &one})
	verdict("c", 1, true, record.Provider, 0, record.Usage{Calls: 1})
	verdict("d", 1, true, record.Scored, 1, record.Usage{})
	put("d", 2, record.KindAttempt, record.Attempt{Attempt: 2, Why: "rerun"}) // is running again
	if err := j.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := j.Seq()
	verdict("e", 1, true, record.Scored, 1, cost(100)) // of this process
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		again string
		want  Earlier
	}{
		{"", Earlier{Scored: 2, Sum: 1.25, Cost: 7, Known: true, Hidden: true}},
		{"b", Earlier{Scored: 1, Sum: 0.25, Cost: 7, Known: true, Hidden: true}},
	} {
		if got := earlier(dir, last, func(trial string, _ ledger.Trial) bool {
			return trial == tt.again
		}); got != tt.want {
			t.Errorf("%q again: %+v, want %+v", tt.again, got, tt.want)
		}
	}
}
