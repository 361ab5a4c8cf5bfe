// Package model defines the contract of model clients: requests, replies, errors and the session
// that a client is bound to. Vendors live in the packages below it. Policies are wrappers around
// them, outermost first:
//
//	tape → meter → retry → limit → gate → vendor
//
// Each wrapper is a [Client] around a Client. The harness wraps the whole stack in a recorder that
// appends each reply to the session's log, so clients know nothing about logs.
//
// # Waiting
//
// A call is either in flight (a request has been sent to the service) or waiting: in a limiter's
// queue or in a back-off between two tries. Each wait is announced by [Binding].Waiting and ends
// before the next request is sent, so a scheduler may use the session's worker for other work
// meanwhile. The time in flight is not a wait.
package model

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/evalrun/evalrun/agent/event"
)

// A Client calls one model for one session, actor and role. It is safe for concurrent use, but each
// actor makes one call at a time.
type Client interface {
	// Generate returns one reply. Its error is an *[Error], which says who is at fault, or wraps
	// the cause of ctx. Either is wrapped in a *[Charge] if the service bills the failed try.
	// Generate neither keeps nor changes req.
	Generate(ctx context.Context, req *Request) (*Response, error)
	Info() Info
}

// A Factory makes the client of one session, actor and role.
type Factory func(b Binding) (Client, error)

// A Binding says which session, actor and role a client belongs to.
type Binding struct {
	Trial     string // ID of the trial
	Benchmark string
	Task      string
	Repeat    int
	Attempt   int
	Arm       string // name of the arm
	Actor     string
	Role      string // main, condenser, grader …
	Seed      uint64

	// Try is called for each try of each call, including failed ones, before Generate returns. May
	// be nil.
	Try func(Try)
	// Waiting is called when a call begins to wait for the service, in a limiter's queue or in a
	// back-off. The function it returns is called once, when that wait ends, also if the call's
	// context has ended. The waits of one call do not overlap; those of several calls of a session
	// may. Neither function may block, because the call may hold a place in the limiter when done
	// is called. Waiting time does not count as the agent's time. May be nil.
	Waiting func() (done func())
	// May is called right before each request to the service; its error ends the call. May be nil.
	// See meter.Gate.
	May func() error
	// N returns the number of the current call, from 0. It may be higher than the number of calls
	// that the client has seen, because replies that an earlier attempt paid for are not requested
	// again. If nil, the client counts for itself.
	N func() int
	// Blob opens the content that message parts refer to. If nil, images cannot be sent.
	Blob func(ctx context.Context, b event.Blob) (io.ReadCloser, error)
}

// A Try describes one try of a call.
type Try struct {
	N, Try  int // N counts the calls of this binding from 0, Try the tries of the call from 1
	Model   string
	Request string        // Request.Hash
	From    string        // source of the reply: "" is the provider; "tape"; "attempt"
	Start   time.Time     // when the request was sent, or, if it never was, when the try was given up
	Latency time.Duration // from Start to the reply or the error
	// Waited is the time that does not count as the agent's: the waits before Start, plus Latency
	// if Err is the service's fault.
	Waited   time.Duration
	HTTP     int
	ID       string // the provider's request ID
	Err      error
	Response *Response // nil when Err is set
}

// Info describes a model; zero values are unknown.
type Info struct {
	Vendor, Name string
	Window       int64 // in tokens
	Images       bool
	Tools        bool
	Price        *Price
}

// A Price is in US dollars per million tokens; nil means unknown.
type Price struct {
	In, Out, Cached, CacheWrite *float64
}

// A Request is the input of a model call.
type Request struct {
	Messages []Message
	Tools    []Tool
	Choice   string // "", "auto", "none", "required", or the name of a tool
	Params   Params
}

// Roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
	ToolRole  = "tool"
)

// A Message is one message of a conversation. Calls, Reasoning and Opaque belong to assistant
// messages, CallID to tool messages.
type Message struct {
	Role      string            `json:"role"`
	Parts     []event.Part      `json:"parts,omitempty"`
	Calls     []event.ReplyCall `json:"calls,omitempty"`
	CallID    string            `json:"call_id,omitempty"`
	Name      string            `json:"name,omitempty"` // name of the tool
	Reasoning string            `json:"reasoning,omitempty"`
	Opaque    json.RawMessage   `json:"opaque,omitempty"`
}

// A Tool is a tool that the model may call. Schema is a JSON Schema of its arguments.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// Params are sampling parameters. A nil field means the arm's configuration and, failing that, the
// provider's default.
type Params struct {
	Temperature *float64                   `json:"temperature,omitempty" yaml:"temperature,omitempty"`
	TopP        *float64                   `json:"top_p,omitempty" yaml:"top_p,omitempty"`
	MaxTokens   *int64                     `json:"max_tokens,omitempty" yaml:"max_tokens,omitempty"`
	Seed        *int64                     `json:"seed,omitempty" yaml:"seed,omitempty"`
	Stop        []string                   `json:"stop,omitempty" yaml:"stop,omitempty"`
	Effort      string                     `json:"reasoning_effort,omitempty" yaml:"reasoning_effort,omitempty"`
	Parallel    *bool                      `json:"parallel_tool_calls,omitempty" yaml:"parallel_tool_calls,omitempty"`
	Extra       map[string]json.RawMessage `json:"extra,omitempty" yaml:"extra,omitempty"` // sent unchanged
}

// Over returns p with its unset fields taken from under. Extra is merged by key.
func (p Params) Over(under Params) Params {
	out := under
	if p.Temperature != nil {
		out.Temperature = p.Temperature
	}
	if p.TopP != nil {
		out.TopP = p.TopP
	}
	if p.MaxTokens != nil {
		out.MaxTokens = p.MaxTokens
	}
	if p.Seed != nil {
		out.Seed = p.Seed
	}
	if p.Stop != nil {
		out.Stop = p.Stop
	}
	if p.Effort != "" {
		out.Effort = p.Effort
	}
	if p.Parallel != nil {
		out.Parallel = p.Parallel
	}
	if len(p.Extra) > 0 {
		out.Extra = maps.Clone(under.Extra)
		if out.Extra == nil {
			out.Extra = map[string]json.RawMessage{}
		}
		maps.Copy(out.Extra, p.Extra)
	}
	return out
}

// Hash identifies a request by the SHA-256 of its messages, tools, choice and parameters. It leaves
// out opaque data and tool call IDs, which servers make up. It is computed for the whole
// conversation at every call, and is therefore written by hand.
func (r *Request) Hash() string {
	buf := hashing.Get().(*[]byte)
	b := append((*buf)[:0], "evalrun/request/1\n"...)
	for i := range r.Messages {
		m := &r.Messages[i]
		b = part(b, 'm', m.Role)
		for _, p := range m.Parts {
			if p.Blob != nil {
				b = part(b, 'b', p.Blob.SHA256)
			} else {
				b = part(b, 't', p.Text)
			}
		}
		for _, c := range m.Calls {
			b = part(b, 'c', c.Name)
			b = part(b, 'a', c.Args)
		}
		b = part(b, 'n', m.Name)
		b = part(b, 'r', m.Reasoning)
	}
	for _, t := range r.Tools {
		b = part(b, 'T', t.Name)
		b = part(b, 'd', t.Description)
		b = part(b, 's', string(t.Schema))
	}
	b = part(b, 'C', r.Choice)
	if !reflect.ValueOf(&r.Params).Elem().IsZero() {
		p, _ := json.Marshal(r.Params) // raw values in the parameters were decoded before, so this cannot fail
		b = part(b, 'P', string(p))
	}
	sum := sha256.Sum256(b)
	*buf = b
	hashing.Put(buf)
	return hex.EncodeToString(sum[:])
}

var hashing = sync.Pool{New: func() any { return new([]byte) }}

// part appends a field: its tag, its length and its content. Absent and empty fields are the same.
func part(b []byte, what byte, s string) []byte {
	if s == "" && what != 'm' {
		return b
	}
	b = append(b, what)
	b = strconv.AppendInt(b, int64(len(s)), 10)
	b = append(b, ':')
	return append(b, s...)
}

// A Response is a model's reply.
type Response struct {
	ID        string // given by the provider; may be empty or not unique
	RequestID string // the provider's request ID, for its support
	Model     string // the name that the provider reported
	Parts     []event.Part
	Reasoning string
	Calls     []event.ReplyCall
	Stop      string // stop, length, tool_calls, content_filter, or the provider's own value
	Usage     event.Usage
	Opaque    json.RawMessage
	Raw       []byte // the raw response; nil if it comes from a tape
	RawReq    []byte // the raw request, without headers
	From      string // "" is the provider; "tape"; "attempt" is a reply that an earlier attempt paid for
}

// Silent reports whether the service did not report the usage of the reply.
func (r *Response) Silent() bool {
	return r.Usage.Silent(len(r.Parts) == 0 && len(r.Calls) == 0 && r.Reasoning == "")
}
