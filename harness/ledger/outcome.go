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

// An Outcome is the part of a record.Verdict that the fold reads.
type Outcome struct {
	Final  bool          `json:"final"`
	Status record.Status `json:"status"`
	End    record.End    `json:"end"`
}

// Closes reports whether the verdict makes the trial's recorded attempts unnecessary, because no
// later attempt will reuse their replies.
func (v Outcome) Closes() bool { return v.Final && !Reopens(v.Status) }

// ReadOutcome parses a verdict entry's data. It tries the exact encoding of a record.Verdict before
// it falls back to encoding/json, because a resume may read 100,000 of them. Data that cannot be
// parsed gives an Outcome that is not final and has no status.
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
		// Fields in another order, or the match is inside a string.
	} else if bytes.Contains(data, []byte(`"end"`)) {
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
