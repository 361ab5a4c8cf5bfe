// Package event is what happens in a session: actions, observations and notes, numbered in one log.
//
// It holds the kinds of events that every environment shares, the [Codec] that turns events into
// JSON and back (open to new kinds), and the contract of the [Log]. It imports the standard library
// only. Start with [Event], [Body] and [Log]; the kinds are in kinds.go. The model of actions and
// observations follows OpenHands.
package event

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Class says what part an event plays.
type Class uint8

const (
	Action      Class = iota + 1 // executed by the environment, or answered on the host (think, finish, delegate …)
	Observation                  // answers exactly one action: Cause is its ID
	Note                         // message, system prompt, model reply, state change: recorded, never executed
)

// Sources of events.
const (
	FromAgent       = "agent"
	FromUser        = "user"
	FromEnvironment = "environment"
)

// An Event is one entry of a session's log. IDs are dense in a session, from 0.
type Event struct {
	ID      int64
	Time    time.Time     // for people
	Mono    time.Duration // since the attempt began; orders and measures
	Source  string        // FromAgent, FromUser, FromEnvironment
	Actor   string        // "" the root agent, "1" its first delegate, "1.2" …: one log, many actors
	Cause   int64         // -1: none
	Call    *Call
	Timeout time.Duration // of an action; 0: the environment's default
	Body    Body
}

// New returns an event that is not in a log yet: ID and Cause are -1.
func New(source string, b Body) Event {
	return Event{ID: -1, Cause: -1, Source: source, Body: b}
}

// A Call points into a recorded model reply, so that a reply with n calls is stored once.
type Call struct {
	Reply string `json:"reply"` // Reply.ID of the note that holds the reply
	ID    string `json:"id"`    // the call's own id, as the model gave it
	Name  string `json:"name"`  // of the tool
	Index int    `json:"index"` // place among the reply's calls, from 0
	Of    int    `json:"of"`    // number of calls in the reply
}

// A Body is the content of one kind of event. Its JSON form is an object. Any package may add kinds
// ("vendor.kind") to a [Codec]; a tool without types of its own uses [ToolCall] and [ToolResult].
type Body interface {
	Kind() string
	Class() Class
}

// A Part of a message: text, or a blob (an image, say).
type Part struct {
	Text string `json:"text,omitempty"`
	Blob *Blob  `json:"blob,omitempty"`
}

// Text is the parts of a plain text.
func Text(s string) []Part { return []Part{{Text: s}} }

// PlainText joins the text parts, a line break between two of them.
func PlainText(parts []Part) string {
	var b []byte
	for _, p := range parts {
		if p.Blob != nil {
			continue
		}
		if len(b) > 0 {
			b = append(b, '\n')
		}
		b = append(b, p.Text...)
	}
	return string(b)
}

// A Blob is content kept apart from the log, by its hash.
type Blob struct {
	SHA256 string `json:"sha256"` // lower-case hexadecimal
	Type   string `json:"type,omitempty"`
	Size   int64  `json:"size"`
}

// MaxInline is the largest text that belongs into an event itself. What is larger goes in as a
// blob.
const MaxInline = 256 << 10

// A Log is one session's stream, safe for several goroutines.
type Log interface {
	// Append masks secrets, gives e its ID, Time and Mono, and adds it; what comes back is the
	// event as it is recorded. It waits while the journal is behind. A second observation for an
	// action is refused with ErrAnswered, an observation without its action with ErrNoAction; after
	// the session's end it is ErrClosed. Nothing is durable before the next Sync.
	Append(ctx context.Context, e Event) (Event, error)
	// Sync returns when all that was appended before, blobs included, is durable. Nothing new: it
	// is free.
	Sync(ctx context.Context) error
	// Events yields the events from ID from on, up to the last one when it was called.
	Events(from int64) iter.Seq2[Event, error]
	// Watch yields events from ID from on as they come, until ctx ends or the log is closed. A
	// reader that lags by more than buffer events gets one Lagged note for what it missed, never
	// silence.
	Watch(ctx context.Context, from int64, buffer int) iter.Seq2[Event, error]
	PutBlob(ctx context.Context, mediaType string, r io.Reader) (Blob, error)
	OpenBlob(ctx context.Context, b Blob) (io.ReadCloser, error)
}

var (
	ErrAnswered = errors.New("the action has its observation already")
	ErrNoAction = errors.New("no such action is waiting for an observation")
	ErrClosed   = errors.New("the session's log is closed")
)
