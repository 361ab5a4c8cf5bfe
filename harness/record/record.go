// Package record defines the contents of the journal: what a run writes while it goes, and the
// interface it writes to. It imports only the standard library. Journals implement [Journal];
// reports read the payload types in payload.go. Parquet columns belong in reports/parquetlog, not
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

// Version is the version of the journal's format. A reader refuses entries with a higher V.
//
//	1  the first format
//	2  large data is in blobs (Stage.GoalBlob, Evidence.Blob); a stage may have several results;
//	   calls are numbered across all stages of an attempt
const Version = 2

// Kinds of entries. The comment names the type of Data.
const (
	KindAttempt  = "attempt"  // Attempt: starts an attempt
	KindEvent    = "event"    // an event of the session, as encoded by agent/event
	KindCall     = "call"     // Call: one try of a model call
	KindReward   = "reward"   // Reward: the reward of a step, kept out of the log that the agent can read
	KindStage    = "stage"    // Stage: starts a stage
	KindEvidence = "evidence" // Evidence: what grading a stage needs; durable before grading
	KindResult   = "result"   // Result: a stage's grade
	KindVerdict  = "verdict"  // Verdict: the result of an attempt; if Final, of the trial
	KindAmend    = "amend"    // Amend: a later correction of a verdict, such as a regrading
	KindSpent    = "spent"    // Spent: model usage that no verdict or amendment reports
	KindMachine  = "machine"  // Machine: a sandbox of the agent is set up, and a resume may find it again
)

// An Entry is one line of the journal.
type Entry struct {
	V       int             `json:"v"`
	Seq     int64           `json:"seq"`               // set by the journal, consecutive from 1
	Time    time.Time       `json:"time"`              // UTC, microseconds
	Trial   string          `json:"trial,omitempty"`   // trial ID
	Attempt int             `json:"attempt,omitempty"` // from 1
	Fence   int64           `json:"fence,omitempty"`   // number of the lease; a lower one is refused
	Kind    string          `json:"kind"`
	Data    json.RawMessage `json:"data"`
}

// A Journal stores entries in order. Its methods are safe for concurrent use.
type Journal interface {
	// Append adds e. The journal sets V, Seq and, if zero, Time. It keeps e.Data, which must not
	// change afterwards. Append blocks while the journal is behind. It returns ErrFenced if e's
	// fence is older than the newest seen for its trial, if no attempt entry has opened the trial,
	// or if its final verdict is written. After a failed write, every call returns that first
	// error.
	Append(ctx context.Context, e Entry) error
	// Sync returns once all entries appended before are durable. A failed write or fsync is
	// permanent. Sync costs nothing if there is nothing new.
	Sync(ctx context.Context) error
	// Attempt yields the entries of one attempt, in order, up to the last one appended before the
	// call. It works until the attempt's trial is decided. If the trial was decided in an earlier
	// process by a failure that was not the agent's, it yields events, rewards and calls. For any
	// other attempt it yields ErrNotOpen.
	Attempt(ctx context.Context, trial string, attempt int) iter.Seq2[Entry, error]
}

// Blobs stores content by its hash. The content type is not stored.
type Blobs interface {
	// Put stores the content of r and returns its SHA-256 (lower-case hexadecimal) and its size in
	// bytes. The blob is durable after the next Sync.
	Put(ctx context.Context, r io.Reader) (sum string, size int64, err error)
	// Open returns the content, or fs.ErrNotExist if there is none. If the content differs from
	// what was put, reading ends with ErrDamaged, at the latest with the last byte.
	Open(ctx context.Context, sum string) (io.ReadCloser, error)
	Sync(ctx context.Context) error
}

var (
	// ErrFenced means that the writer's lease is not the newest: another process holds the trial,
	// or it is decided.
	ErrFenced = errors.New("the lease on this trial is no longer held")
	// ErrNotOpen means that the journal does not index this attempt any more.
	ErrNotOpen = errors.New("the attempt is not open")
	// ErrDamaged means that a blob's content does not match its name. The error that wraps it names
	// the file.
	ErrDamaged = errors.New("the blob is damaged: its content is not what its name says")
	// ErrMissing means that a blob referred to by evidence does not exist.
	ErrMissing = errors.New("kept content is missing")
	// ErrLowSpace means that the disk is nearly full. Nothing was lost, and no new work may start.
	ErrLowSpace = errors.New("too little free disk space")
)
