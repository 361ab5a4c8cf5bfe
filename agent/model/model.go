// Package model is the contract of model clients: what a request and a reply are, whose fault an
// error is, and to whom a client is bound. Vendors live in folders below it; policy is wrapped
// around them, outermost first:
//
//	tape → meter → retry → limit → gate → vendor
//
// Each wrapper is a [Client] around a Client. Whoever runs sessions puts a recorder around the
// whole stack, which appends the reply to the session's log, so that clients themselves know no
// log.
//
// # Waiting
//
// A call is either out (a request is at the service) or it waits: in a limiter's queue, or in a
// back-off between two tries. Each wait is announced by [Binding].Waiting and ends before the next
// request goes out, so a scheduler may use the session's worker for other work meanwhile. A request
// that is out and not answered is no wait.
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

// A Client calls one model for one session, actor and role. It may be used by several goroutines,
// but an actor makes one call at a time.
type Client interface {
	// Generate returns one reply. Its error is an *[Error] that says whose fault it was, or wraps
	// ctx's cause. Either is wrapped in a *[Charge] where the service bills the try all the same.
	// The request is not kept and not changed.
	Generate(ctx context.Context, req *Request) (*Response, error)
	Info() Info
}

// A Factory makes the client of one session, actor and role.
type Factory func(b Binding) (Client, error)

// A Binding says whose client it is.
type Binding struct {
	Trial     string // trial ID
	Benchmark string
	Task      string
	Repeat    int
	Attempt   int
	Arm       string // arm's name
	Actor     string
	Role      string // main, condenser, grader …
	Seed      uint64

	// Try is told of every try of every call, failed ones too, before Generate returns. May be nil.
	Try func(Try)
	// Waiting is called when a call begins to wait for its turn at the service: in a limiter's
	// queue or in a back-off. It returns a function that is called once, when that wait ends, also
	// where the call's context has ended. The waits of one call do not overlap; those of several
	// calls of a session may. Neither function may block: when done is called, the call may hold a
	// place in the limiter. Such time is not the agent's. May be nil.
	Waiting func() (done func())
	// May is asked right before each request to the service; its error ends the call. May be nil.
	// See meter.Gate.
	May func() error
	// N is the number of the call that is being made, from 0. It may run ahead of the calls that a
	// client sees, since replies that an earlier attempt paid for are not asked for again. Nil: the
	// client counts for itself.
	N func() int
	// Blob opens what parts of messages point to. May be nil: then images cannot be sent.
	Blob func(ctx context.Context, b event.Blob) (io.ReadCloser, error)
}

// A Try is one try of a call.
type Try struct {
	N, Try  int // n counts the calls of this binding from 0, Try those of the call from 1
	Model   string
	Request string        // Request.Hash
	From    string        // "": the provider; "tape"; "attempt"
	Start   time.Time     // when the request went out; of one that never did, when it was given up
	Latency time.Duration // from Start to the reply or the error
	// before Start, and Latency too where the service is to blame for Err: what is not the agent's
	// time
	Waited   time.Duration
	HTTP     int
	ID       string // the provider's request id
	Err      error
	Response *Response // nil when Err is set
}

// Info is what is known of a model; zero means not known.
type Info struct {
	Vendor, Name string
	Window       int64 // tokens
	Images       bool
	Tools        bool
	Price        *Price
}

// A Price is in US dollars for a million tokens; nil means not known.
type Price struct {
	In, Out, Cached, CacheWrite *float64
}

// A Request is what a model is asked.
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

// A Message of a conversation. Calls, Reasoning and Opaque belong to assistant messages, CallID to
// tool messages.
type Message struct {
	Role      string            `json:"role"`
	Parts     []event.Part      `json:"parts,omitempty"`
	Calls     []event.ReplyCall `json:"calls,omitempty"`
	CallID    string            `json:"call_id,omitempty"`
	Name      string            `json:"name,omitempty"` // of the tool
	Reasoning string            `json:"reasoning,omitempty"`
	Opaque    json.RawMessage   `json:"opaque,omitempty"`
}

// A Tool that the model may call. Schema is a JSON Schema of its arguments.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// Params are sampling parameters. A nil field is left to the arm's configuration, then to the
// provider.
type Params struct {
	Temperature *float64                   `json:"temperature,omitempty" yaml:"temperature,omitempty"`
	TopP        *float64                   `json:"top_p,omitempty" yaml:"top_p,omitempty"`
	MaxTokens   *int64                     `json:"max_tokens,omitempty" yaml:"max_tokens,omitempty"`
	Seed        *int64                     `json:"seed,omitempty" yaml:"seed,omitempty"`
	Stop        []string                   `json:"stop,omitempty" yaml:"stop,omitempty"`
	Effort      string                     `json:"reasoning_effort,omitempty" yaml:"reasoning_effort,omitempty"`
	Parallel    *bool                      `json:"parallel_tool_calls,omitempty" yaml:"parallel_tool_calls,omitempty"`
	Extra       map[string]json.RawMessage `json:"extra,omitempty" yaml:"extra,omitempty"` // sent as they are
}

// Over returns p, with what under says where p says nothing. Extra is merged by key.
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

// Hash identifies a request: SHA-256 over its messages, tools, choice and parameters. Tool call ids
// are left out, since servers make them up, and so is what is opaque. It is asked for at every
// call, over the whole conversation: so it is written by hand.
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
		p, _ := json.Marshal(r.Params) // raw values in it were decoded before
		b = part(b, 'P', string(p))
	}
	sum := sha256.Sum256(b)
	*buf = b
	hashing.Put(buf)
	return hex.EncodeToString(sum[:])
}

var hashing = sync.Pool{New: func() any { return new([]byte) }}

// part appends a field: what it is, its length, itself. Absent and empty fields are the same.
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
	RequestID string // the provider's request id, for its support
	Model     string // as the provider named itself
	Parts     []event.Part
	Reasoning string
	Calls     []event.ReplyCall
	Stop      string // stop, length, tool_calls, content_filter, or the provider's own word
	Usage     event.Usage
	Opaque    json.RawMessage
	Raw       []byte // as it came; nil from a tape
	RawReq    []byte // as it went out, without headers
	From      string // "": the provider; "tape"; "attempt": paid for before
}

// Silent reports whether the service does not say what the reply took.
func (r *Response) Silent() bool {
	return r.Usage.Silent(len(r.Parts) == 0 && len(r.Calls) == 0 && r.Reasoning == "")
}
