package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// A Codec converts events to JSON and back. The zero value knows no kinds; use [Default] or
// [NewCodec]. A Codec is safe for concurrent use, but kinds must be registered before it is used.
//
// An event is encoded as one object; empty fields are left out:
//
//	{"id":5,"time":"2026-11-21T10:00:07.120000Z","mono_us":7120000,"source":"agent",
//	 "actor":"1","cause":3,"call":{…},"timeout_ms":300000,"class":"action","kind":"run","body":{…}}
//
// If the body is too large for the log, it is stored as a blob, and "blob" replaces "body".
type Codec struct {
	mu    sync.RWMutex
	kinds map[key]func(json.RawMessage) (Body, error)
}

type key struct {
	class Class
	kind  string
}

// Default is a codec that knows the shared kinds.
var Default = NewCodec()

// NewCodec returns a codec that knows the shared kinds.
func NewCodec() *Codec {
	c := &Codec{kinds: map[key]func(json.RawMessage) (Body, error){}}
	Register[Run](c, "run")
	Register[Read](c, "read")
	Register[Edit](c, "edit")
	Register[Write](c, "write")
	Register[Glob](c, "glob")
	Register[Grep](c, "grep")
	Register[Found](c, "glob")
	Register[Found](c, "grep")
	Register[Viewed](c, "read")
	Register[Edited](c, "edit")
	Register[Edited](c, "write")
	Register[ToolCall](c, "tool")
	Register[Think](c, "think")
	Register[Finish](c, "finish")
	Register[Invalid](c, "invalid")
	Register[RunResult](c, "run")
	Register[ToolResult](c, "tool")
	Register[Ack](c, "think")
	Register[Ack](c, "finish")
	Register[Error](c, "error")
	Register[Lost](c, "lost")
	Register[Message](c, "message")
	Register[System](c, "system")
	Register[Reply](c, "reply")
	Register[Put](c, "put")
	Register[NetworkRefused](c, "network_refused")
	Register[Late](c, "late")
	Register[Lagged](c, "lagged")
	Register[Info](c, "info")
	Register[BrowseURL](c, "browse")
	Register[Browse](c, "browse_interactive")
	Register[Browsed](c, "browse")
	return c
}

// Register adds a kind with body type B. It replaces an earlier registration of the kind.
func Register[B Body](c *Codec, kind string) {
	var zero B
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds[key{zero.Class(), kind}] = func(raw json.RawMessage) (Body, error) {
		var b B
		if err := json.Unmarshal(raw, &b); err != nil {
			return nil, err
		}
		return b, nil
	}
}

// Unknown is an event of a kind that the codec does not know. It is encoded byte for byte as it was
// read.
type Unknown struct {
	K   string
	C   Class
	Raw json.RawMessage
}

func (u Unknown) Kind() string { return u.K }
func (u Unknown) Class() Class { return u.C }

func (u Unknown) MarshalJSON() ([]byte, error) { return u.Raw, nil }

func (c Class) String() string {
	switch c {
	case Action:
		return "action"
	case Observation:
		return "observation"
	case Note:
		return "note"
	}
	return "class(" + strconv.Itoa(int(c)) + ")"
}

// Stored is an event whose body is too large for the log; the blob holds the body's JSON. Logs
// store and resolve it, so others see it only when they read a journal without its blobs.
type Stored struct {
	K    string
	C    Class
	Blob Blob
}

func (s Stored) Kind() string { return s.K }
func (s Stored) Class() Class { return s.C }

// ParseClass is the inverse of [Class.String] for the three classes.
func ParseClass(s string) (Class, error) {
	switch s {
	case "action":
		return Action, nil
	case "observation":
		return Observation, nil
	case "note":
		return Note, nil
	}
	return 0, fmt.Errorf("event: unknown class %q", s)
}

const timeForm = "2006-01-02T15:04:05.000000Z"

// Append appends the JSON of e to dst. The envelope is written by hand. Encoding the body once and
// compacting it again as a raw value inside an envelope would be the largest cost in a busy run.
func (c *Codec) Append(dst []byte, e Event) ([]byte, error) {
	if e.Body == nil {
		return nil, fmt.Errorf("event %d: no body", e.ID)
	}
	dst = append(dst, `{"id":`...)
	dst = strconv.AppendInt(dst, e.ID, 10)
	dst = append(dst, `,"time":"`...)
	dst = e.Time.UTC().AppendFormat(dst, timeForm)
	dst = append(dst, `","mono_us":`...)
	dst = strconv.AppendInt(dst, e.Mono.Microseconds(), 10)
	dst = append(dst, `,"source":`...)
	dst = AppendString(dst, e.Source)
	if e.Actor != "" {
		dst = append(dst, `,"actor":`...)
		dst = AppendString(dst, e.Actor)
	}
	if e.Cause >= 0 {
		dst = append(dst, `,"cause":`...)
		dst = strconv.AppendInt(dst, e.Cause, 10)
	}
	if e.Call != nil {
		b, err := json.Marshal(e.Call)
		if err != nil {
			return nil, fmt.Errorf("event %d: call: %w", e.ID, err)
		}
		dst = append(dst, `,"call":`...)
		dst = append(dst, b...)
	}
	if e.Timeout > 0 {
		dst = append(dst, `,"timeout_ms":`...)
		dst = strconv.AppendInt(dst, e.Timeout.Milliseconds(), 10)
	}
	dst = append(dst, `,"class":"`...)
	dst = append(dst, e.Body.Class().String()...)
	dst = append(dst, `","kind":`...)
	dst = AppendString(dst, e.Body.Kind())
	if st, ok := e.Body.(Stored); ok {
		b, err := json.Marshal(st.Blob)
		if err != nil {
			return nil, fmt.Errorf("event %d: blob: %w", e.ID, err)
		}
		dst = append(dst, `,"blob":`...)
		dst = append(dst, b...)
		return append(dst, '}'), nil
	}
	dst = append(dst, `,"body":`...)
	if u, ok := e.Body.(Unknown); ok {
		dst = append(dst, u.Raw...)
		return append(dst, '}'), nil
	}
	// The encoder ends its output with a line break, which the closing brace replaces.
	w := writer{dst}
	enc := json.NewEncoder(&w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e.Body); err != nil {
		return nil, fmt.Errorf("event %d (%s): %w", e.ID, e.Body.Kind(), err)
	}
	w.b[len(w.b)-1] = '}'
	return w.b, nil
}

type writer struct{ b []byte }

func (w *writer) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// marshal is json.Marshal without HTML escaping, because shell commands are full of < > and &.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	b := buf.Bytes()
	return b[:len(b)-1], nil
}

// AppendString appends s as a JSON string. It replaces invalid UTF-8 by U+FFFD, as encoding/json
// does.
func AppendString(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if b := s[i]; b < 0x20 || b == '"' || b == '\\' || b >= utf8.RuneSelf {
			j, err := marshal(s)
			if err != nil { // strings can always be encoded
				panic(err)
			}
			return append(dst, j...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

type wire struct {
	ID        int64           `json:"id"`
	Time      time.Time       `json:"time"`
	MonoUS    int64           `json:"mono_us"`
	Source    string          `json:"source"`
	Actor     string          `json:"actor"`
	Cause     *int64          `json:"cause"`
	Call      *Call           `json:"call"`
	TimeoutMS int64           `json:"timeout_ms"`
	Class     string          `json:"class"`
	Kind      string          `json:"kind"`
	Body      json.RawMessage `json:"body"`
	Blob      *Blob           `json:"blob"`
}

// Decode decodes one event. An event of an unregistered kind becomes an [Unknown]. A body that does
// not fit its registered kind is an error.
func (c *Codec) Decode(data []byte) (Event, error) {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return Event{}, fmt.Errorf("event: %w", err)
	}
	class, err := ParseClass(w.Class)
	if err != nil {
		return Event{}, err
	}
	if w.Kind == "" {
		return Event{}, fmt.Errorf("event %d: no kind", w.ID)
	}
	e := Event{
		ID: w.ID, Time: w.Time, Mono: time.Duration(w.MonoUS) * time.Microsecond, Source: w.Source, Actor: w.Actor,
		Cause: -1,
		Call:  w.Call, Timeout: time.Duration(w.TimeoutMS) * time.Millisecond,
	}
	if w.Cause != nil {
		e.Cause = *w.Cause
	}
	if w.Blob != nil {
		e.Body = Stored{K: w.Kind, C: class, Blob: *w.Blob}
		return e, nil
	}
	e.Body, err = c.DecodeBody(class, w.Kind, w.Body)
	if err != nil {
		return Event{}, fmt.Errorf("event %d: %w", w.ID, err)
	}
	return e, nil
}

// DecodeBody decodes a body without its envelope, as the protocols of external agents send it.
func (c *Codec) DecodeBody(class Class, kind string, raw json.RawMessage) (Body, error) {
	c.mu.RLock()
	dec := c.kinds[key{class, kind}]
	c.mu.RUnlock()
	if dec == nil {
		if len(raw) == 0 {
			raw = json.RawMessage("{}")
		}
		return Unknown{K: kind, C: class, Raw: raw}, nil
	}
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	b, err := dec(raw)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", class, kind, err)
	}
	switch x := b.(type) {
	case Ack:
		x.Of = kind
		return x, nil
	case Found:
		x.Of = kind
		return x, nil
	case Edited:
		x.Of = kind
		return x, nil
	}
	return b, nil
}
