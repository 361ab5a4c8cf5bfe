package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// This file has the messages of docs/protocol.md.

// Version is the version of the protocol.
const Version = 1

// Types of messages.
const (
	typeStart  = "start"
	typeStep   = "step"
	typeModel  = "model"
	typeNote   = "note"
	typeBlob   = "blob"
	typeFinish = "finish"
	typeResult = "result"
	typeError  = "error"
)

// Classes of errors in responses.
const (
	errRequest = "request" // the message was understood but the request cannot be executed
	errLimit   = "limit"   // a limit was reached; only finish may follow
	errOver    = "over"    // the episode is over; only finish may follow
	errModel   = "model"   // the model refused
)

// Messages from the program. Fields that belong to another type of message are rejected.
type (
	hello struct {
		Type     string `json:"type"`
		Protocol int    `json:"protocol"`
		Name     string `json:"name"`
		Version  string `json:"version"`
	}
	stepMsg struct {
		Type      string          `json:"type"`
		ID        int64           `json:"id"`
		Kind      string          `json:"kind"`
		Body      json.RawMessage `json:"body"`
		TimeoutMS int64           `json:"timeout_ms"`
		Call      *event.Call     `json:"call"`
	}
	modelMsg struct {
		Type     string          `json:"type"`
		ID       int64           `json:"id"`
		Role     string          `json:"role"`
		Messages []model.Message `json:"messages"`
		Tools    []model.Tool    `json:"tools"`
		Choice   string          `json:"choice"`
		Params   model.Params    `json:"params"`
	}
	noteMsg struct {
		Type string          `json:"type"`
		ID   int64           `json:"id"`
		Kind string          `json:"kind"`
		Body json.RawMessage `json:"body"`
	}
	blobMsg struct {
		Type   string `json:"type"`
		ID     int64  `json:"id"`
		SHA256 string `json:"sha256"`
	}
	finishMsg struct {
		Type   string       `json:"type"`
		Answer agent.Answer `json:"answer"`
	}
)

// Messages to the program.
type (
	startMsg struct {
		Type     string          `json:"type"`
		Protocol int             `json:"protocol"`
		Goal     agent.Goal      `json:"goal"`
		Prompt   string          `json:"prompt,omitempty"`
		Stage    int64           `json:"stage"`
		Actor    string          `json:"actor"`
		Seed     uint64          `json:"seed"`
		Kinds    []string        `json:"kinds"`
		Tools    []model.Tool    `json:"tools"`
		Model    *modelInfo      `json:"model"` // null if the arm has no model
		Left     left            `json:"left"`
		Options  json.RawMessage `json:"options,omitempty"`
		// History holds the events of earlier stages. HistoryFrom is the ID of the first; the
		// oldest events are left out if there are too many.
		History     []json.RawMessage `json:"history"`
		HistoryFrom int64             `json:"history_from"`
	}
	modelInfo struct {
		Vendor string `json:"vendor,omitempty"`
		Name   string `json:"name"`
		Window int64  `json:"window,omitempty"`
		Images bool   `json:"images"`
		Tools  bool   `json:"tools"`
	}
	// left is what remains of the limits; null means no limit.
	left struct {
		Turns  *int64   `json:"turns"`
		Tokens *int64   `json:"tokens"`
		USD    *float64 `json:"usd"`
		TimeMS *int64   `json:"time_ms"`
	}
	resultMsg struct {
		Type  string          `json:"type"`
		ID    int64           `json:"id"`
		Event json.RawMessage `json:"event,omitempty"` // for step and note
		Text  string          `json:"text,omitempty"`  // for step with a browser: the page
		Done  bool            `json:"done,omitempty"`  // for step: the episode is over
		Reply *event.Reply    `json:"reply,omitempty"` // for model
		Media string          `json:"media_type,omitempty"`
		Data  *[]byte         `json:"data,omitempty"` // for blob, in base64
		Left  *left           `json:"left,omitempty"` // for step and model
	}
	errorMsg struct {
		Type  string  `json:"type"`
		ID    int64   `json:"id"`
		Error errBody `json:"error"`
	}
	errBody struct {
		Class string `json:"class"`
		Kind  string `json:"kind,omitempty"` // the limit, or the class of the model's error
		Text  string `json:"text"`
	}
)

// A refusal is an error that is reported to the program, which may continue.
type refusal struct{ errBody }

func (r *refusal) Error() string { return r.Text }

func refuse(format string, args ...any) *refusal {
	return &refusal{errBody{Class: errRequest, Text: fmt.Sprintf(format, args...)}}
}

// strict decodes a message and rejects unknown fields, because a misspelled field would be ignored
// silently.
func strict(line []byte, v any) *refusal {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return refuse("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// probe lists the kinds that a program is told about, because Env.Can cannot list kinds.
var probe = []string{
	"run", "run_ipython", "read", "write", "edit", "browse", "browse_interactive", "mcp", "tool", "think", "finish",
}

func kinds(s *agent.Session) []string {
	out := []string{"think", "finish"} // supported in every environment
	for _, k := range probe {
		if s.Can(k) && k != "think" && k != "finish" {
			out = append(out, k)
		}
	}
	return out
}

func budget(s *agent.Session) left {
	if s.Left == nil {
		return left{}
	}
	b := s.Left()
	var l left
	if b.Turns >= 0 {
		l.Turns = &b.Turns
	}
	if b.Tokens >= 0 {
		l.Tokens = &b.Tokens
	}
	if b.USD >= 0 {
		l.USD = &b.USD
	}
	if b.Time >= 0 {
		ms := b.Time.Milliseconds()
		l.TimeMS = &ms
	}
	return l
}

// encode returns an event as the codec writes it. It leaves out a body of unknown kind that is not
// valid JSON.
func encode(e event.Event) (json.RawMessage, error) {
	if u, ok := e.Body.(event.Unknown); ok && !json.Valid(u.Raw) {
		u.Raw = json.RawMessage("{}")
		e.Body = u
	}
	return event.Default.Append(nil, e)
}

// line returns a message as it is sent. It does not escape HTML, because commands are full of < and
// >.
func line(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v) // adds the line break
	return buf.Bytes(), err
}
