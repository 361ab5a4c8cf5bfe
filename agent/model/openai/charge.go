package openai

import (
	"bytes"
	"encoding/json"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// maxOutput limits the assumed output of a reply if neither the request nor the configuration does.
// No model in the price list produces more.
const maxOutput = 128 << 10

// charge adds to the error of a try what the service bills for it. Usage reported by the service is
// used in any case. Otherwise a request that was sent is charged with the maximum that it can have
// used. Responses with an error status are billed only if they say so; the same holds for errors
// that a router sends with status 200.
func (m *Model) charge(got *exchange, err error) error {
	said := findUsage(got.reply)
	if u := usage(said); u.In > 0 || u.Out > 0 || u.Cost != nil {
		return &model.Charge{Usage: u, Err: err}
	}
	// A cost that cannot be parsed is billed nevertheless.
	if _, ok := cost(said); ok && (!got.sent.Load() || got.status >= 400 || isError(got.reply)) {
		return err
	}
	return &model.Charge{Usage: m.most(got.request), Bound: true, Err: err}
}

// isError reports whether a reply with a success status is an error that a router sends in place of
// a reply. Any other content may be billed.
func isError(reply []byte) bool {
	var r struct {
		Error   json.RawMessage   `json:"error"`
		Choices []json.RawMessage `json:"choices"`
	}
	if json.Unmarshal(reply, &r) != nil || len(r.Choices) > 0 || len(r.Error) == 0 || r.Error[0] != '{' &&
		r.Error[0] != '"' {
		return false
	}
	_, message := readError(reply)
	return message != ""
}

// most returns the maximum usage of a request: a token has at least one byte, and the output is
// limited by the request or by the model's window.
func (m *Model) most(request []byte) event.Usage {
	var p struct {
		MaxTokens     int64 `json:"max_tokens"`
		MaxCompletion int64 `json:"max_completion_tokens"`
		N             int64 `json:"n"`
	}
	_ = json.Unmarshal(request, &p) // our own JSON, so it cannot fail
	in, out := int64(len(request)), max(p.MaxTokens, p.MaxCompletion)
	if out <= 0 {
		out = maxOutput
	}
	if w := m.cfg.Window; w > 0 {
		in, out = min(in, w), min(out, w)
	}
	return event.Usage{In: min(in, maxTokens), Out: min(out, maxTokens/16) * min(max(p.N, 1), 16)}
}

// findUsage extracts the usage from a reply that may be truncated or a stream of events. It uses
// the last one, because a stream reports running totals. The key cannot match inside a text, where
// its quotes would be escaped.
func findUsage(reply []byte) spent {
	key := []byte(`"usage"`)
	for {
		i := bytes.LastIndex(reply, key)
		if i < 0 {
			return spent{}
		}
		rest := bytes.TrimLeft(reply[i+len(key):], " \t\r\n")
		if len(rest) > 0 && rest[0] == ':' {
			var raw json.RawMessage
			var u spent
			err := json.NewDecoder(bytes.NewReader(rest[1:])).Decode(&raw)
			if err == nil && raw[0] == '{' && decode(raw, &u) == nil {
				return u
			}
		}
		reply = reply[:i]
	}
}
