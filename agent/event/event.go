// Package event defines the events of a session (actions, observations and notes) and the log that
// numbers them.
//
// It has the kinds of events that all environments share (kinds.go), the [Codec] that converts
// events to JSON and back and accepts new kinds, and the contract of the [Log]. It imports only the
// standard library. Start with [Event], [Body] and [Log]. The model of actions and observations
// follows OpenHands.
package event

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Class is the role of an event.
type Class uint8

const (
	Action      Class = iota + 1 // executed by the environment, or answered on the host (think, finish, delegate …)
	Observation                  // answers exactly one action, whose ID is Cause
	Note                         // a message, system prompt, model reply or state change; recorded, never executed
)

// Sources of events.
const (
	FromAgent       = "agent"
	FromUser        = "user"
	FromEnvironment = "environment"
)

// An Event is one entry of a session's log. The IDs of a session count from 0 without gaps.
type Event struct {
	ID      int64
	Time    time.Time     // wall-clock time, for display
	Mono    time.Duration // time since the attempt began; used for order and durations
	Source  string        // FromAgent, FromUser, FromEnvironment
	Actor   string        // "" is the root agent, "1" its first delegate, "1.2" …; all actors share one log
	Cause   int64         // -1 if there is none
	Call    *Call
	Timeout time.Duration // of an action; 0 means the environment's default
	Body    Body
}

// New returns an event that is not in a log yet; its ID and Cause are -1.
func New(source string, b Body) Event {
	return Event{ID: -1, Cause: -1, Source: source, Body: b}
}

// A Call refers to a call in a recorded model reply, so that a reply with n calls is stored once.
type Call struct {
	Reply string `json:"reply"` // Reply.ID of the note that holds the reply
	ID    string `json:"id"`    // the call's ID, as given by the model
	Name  string `json:"name"`  // name of the tool
	Index int    `json:"index"` // index among the reply's calls, from 0
	Of    int    `json:"of"`    // number of calls in the reply
}

// A Body is the content of one kind of event. It is encoded as a JSON object. Any package may add
// kinds ("vendor.kind") to a [Codec]; tools without their own types use [ToolCall] and
// [ToolResult].
type Body interface {
	Kind() string
	Class() Class
}

// A Part of a message is text or a blob, such as an image.
type Part struct {
	Text string `json:"text,omitempty"`
	Blob *Blob  `json:"blob,omitempty"`
}

// Text returns s as a list of one text part.
func Text(s string) []Part { return []Part{{Text: s}} }

// PlainText joins the text parts with line breaks.
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

// A Blob refers to content stored outside the log, by its hash.
type Blob struct {
	SHA256 string `json:"sha256"` // lower-case hexadecimal
	Type   string `json:"type,omitempty"`
	Size   int64  `json:"size"`
}

// MaxInline is the largest text in bytes that an event holds itself. Larger text is stored as a
// blob.
const MaxInline = 256 << 10

// A Log is the stream of events of one session. It is safe for concurrent use.
type Log interface {
	// Append masks secrets, sets the ID, Time and Mono of e, adds it to the log, and returns the
	// recorded event. It blocks while the journal is behind. It returns ErrAnswered for a second
	// observation of an action, ErrNoAction for an observation without its action, and ErrClosed
	// after the end of the session. Nothing is durable before the next Sync.
	Append(ctx context.Context, e Event) (Event, error)
	// Sync returns once all earlier appends, including their blobs, are durable. It costs nothing
	// if there is nothing new.
	Sync(ctx context.Context) error
	// Events yields the events starting with ID from, up to the newest one at the time of the call.
	Events(from int64) iter.Seq2[Event, error]
	// Watch yields events starting with ID from as they are appended, until ctx ends or the log is
	// closed. A reader that falls more than buffer events behind gets one Lagged note that counts
	// the events it missed.
	Watch(ctx context.Context, from int64, buffer int) iter.Seq2[Event, error]
	PutBlob(ctx context.Context, mediaType string, r io.Reader) (Blob, error)
	OpenBlob(ctx context.Context, b Blob) (io.ReadCloser, error)
}

var (
	ErrAnswered = errors.New("the action has its observation already")
	ErrNoAction = errors.New("no such action is waiting for an observation")
	ErrClosed   = errors.New("the session's log is closed")
)
