// Package record is the form of the journal: what a run writes down while it goes, and the
// interface that it writes to. It imports the standard library only. Journals implement [Journal];
// reports read the payload types in payload.go; Parquet columns belong to reports/parquetlog, not
// here.
package record

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"time"
)

// Version of the journal's form. A reader refuses entries with a newer V.
//
//	1  the first form
//	2  what is large stands in blobs (Stage.GoalBlob, Evidence.Blob); a stage may have several results;
//	   calls are numbered through all stages of an attempt
const Version = 2

// Kinds of entries, with the type of their Data.
const (
	KindAttempt  = "attempt"  // Attempt: an attempt begins
	KindEvent    = "event"    // an event of the session, as agent/event encodes it
	KindCall     = "call"     // Call: one try of one model call
	KindReward   = "reward"   // Reward: what a step brought, kept out of the log that the agent can read
	KindStage    = "stage"    // Stage: a stage begins
	KindEvidence = "evidence" // Evidence: what a stage's grading needs; durable before grading
	KindResult   = "result"   // Result: a stage's grade
	KindVerdict  = "verdict"  // Verdict: what became of an attempt; Final ends the trial
	KindAmend    = "amend"    // Amend: a later correction of a verdict (a re-score, say)
	KindSpent    = "spent"    // Spent: what models took, where no verdict and no amendment says so
)

// An Entry is one line of the journal.
type Entry struct {
	V       int             `json:"v"`
	Seq     int64           `json:"seq"`               // given by the journal, dense from 1
	Time    time.Time       `json:"time"`              // UTC, microseconds
	Trial   string          `json:"trial,omitempty"`   // trial ID
	Attempt int             `json:"attempt,omitempty"` // from 1
	Fence   int64           `json:"fence,omitempty"`   // given out with the lease; an older one is refused
	Kind    string          `json:"kind"`
	Data    json.RawMessage `json:"data"`
}

// A Journal keeps entries in order. Its methods may be called from several goroutines.
type Journal interface {
	// Append adds e; V, Seq and (when zero) Time are set by the journal. It keeps e.Data, which
	// must not change afterwards. It waits while the journal is behind. An entry of a fence older
	// than the newest seen for its trial is refused with ErrFenced; so is one for a trial that no
	// attempt entry has opened, or whose final verdict is in. After a failed write every call
	// returns that first error.
	Append(ctx context.Context, e Entry) error
	// Sync returns when everything appended before it is durable. The first failed write or fsync
	// is final. With nothing new it is free.
	Sync(ctx context.Context) error
	// Attempt yields the entries of one attempt, in order, up to the last one appended when it was
	// called. It may be asked for until the attempt's trial is decided. Of a trial that was decided
	// in an earlier process for a failure that was not the agent's, events, rewards and calls are
	// yielded. Anything else is ErrNotOpen.
	Attempt(ctx context.Context, trial string, attempt int) iter.Seq2[Entry, error]
}

// Blobs keeps content by its hash. The type of content is not part of it.
type Blobs interface {
	// Put stores what r has and returns its SHA-256 (lower-case hexadecimal) and size. It is
	// durable after the next Sync.
	Put(ctx context.Context, r io.Reader) (sum string, size int64, err error)
	// Open returns the content; fs.ErrNotExist when there is none. Reading ends with ErrDamaged, at
	// the latest with the last byte, where it is not the content that was put.
	Open(ctx context.Context, sum string) (io.ReadCloser, error)
	Sync(ctx context.Context) error
}

var (
	// ErrFenced: the writer's lease is not the newest; somebody else has the trial now, or it is
	// decided.
	ErrFenced = errors.New("the lease on this trial is no longer held")
	// ErrNotOpen: the journal no longer indexes this attempt.
	ErrNotOpen = errors.New("the attempt is not open")
	// ErrDamaged: the content of a blob is not what its name says. The error that wraps it names
	// the file.
	ErrDamaged = errors.New("the blob is damaged: its content is not what its name says")
	// ErrMissing: a blob that evidence names is not there.
	ErrMissing = errors.New("kept content is missing")
	// ErrLowSpace: the disk is nearly full; nothing was lost, and no new work may begin.
	ErrLowSpace = errors.New("too little free disk space")
)
