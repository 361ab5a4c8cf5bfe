package ledger

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/harness/record"
)

var (
	statuses = []record.Status{"", record.Scored, record.Infra, record.Provider, record.Grader, record.Canceled,
		record.Skipped}
	ends = []record.End{"", record.Answered, record.GaveUp, record.Limit, record.Broke}
)

func place[T comparable](in []T, x T) uint8 { return uint8(max(0, slices.Index(in, x))) }

// An Outcome is what the fold reads of a record.Verdict.
type Outcome struct {
	Final  bool          `json:"final"`
	Status record.Status `json:"status"`
	End    record.End    `json:"end"`
}

// Closes reports whether the verdict ends the trial's need for what its attempts recorded: nobody
// will ask for their replies again.
func (v Outcome) Closes() bool { return v.Final && !Reopens(v.Status) }

// ReadOutcome reads a verdict entry's data. It tries the form in which a record.Verdict is encoded
// before it asks encoding/json, since a resume reads 100,000 of them. What cannot be read is not
// final and has no status.
func ReadOutcome(data []byte) (v Outcome) {
	s, ok := bytes.CutPrefix(data, []byte(`{"final":true,"status":"`))
	if ok {
		v.Final = true
	} else if s, ok = bytes.CutPrefix(data, []byte(`{"final":false,"status":"`)); !ok {
		return slowOutcome(data)
	}
	status, s, ok := bytes.Cut(s, []byte(`"`))
	if !ok || bytes.IndexByte(status, '\\') >= 0 {
		return slowOutcome(data)
	}
	v.Status = statuses[placeOf(statuses, status)]
	if s, ok = bytes.CutPrefix(s, []byte(`,"end":"`)); ok {
		end, _, ok := bytes.Cut(s, []byte(`"`))
		if !ok || bytes.IndexByte(end, '\\') >= 0 {
			return slowOutcome(data)
		}
		v.End = ends[placeOf(ends, end)]
	} else if bytes.Contains(data, []byte(`"end"`)) { // in another order, or inside a text
		return slowOutcome(data)
	}
	return v
}

func placeOf[T ~string](in []T, x []byte) int {
	return max(0, slices.IndexFunc(in, func(y T) bool { return string(x) == string(y) }))
}

func slowOutcome(data []byte) (v Outcome) {
	if json.Unmarshal(data, &v) != nil {
		return Outcome{}
	}
	return v
}
