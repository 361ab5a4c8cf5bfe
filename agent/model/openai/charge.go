package openai

import (
	"bytes"
	"encoding/json"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

// maxOutput bounds the output of a reply where neither the request nor the configuration does: no
// model of the price list gives more.
const maxOutput = 128 << 10

// charge adds to the error of a try what the service bills for it. What the service says counts,
// whatever else it says. A request that was sent and has no such answer counts at the most that it
// can have taken. An error status is not billed unless it says so, nor is an error that a router
// sends with status 200.
func (m *Model) charge(got *exchange, err error) error {
	said := findUsage(got.reply)
	if u := usage(said); u.In > 0 || u.Out > 0 || u.Cost != nil {
		return &model.Charge{Usage: u, Err: err}
	}
	// A cost that cannot be read is billed all the same.
	if _, ok := cost(said); ok && (!got.sent.Load() || got.status >= 400 || isError(got.reply)) {
		return err
	}
	return &model.Charge{Usage: m.most(got.request), Bound: true, Err: err}
}

// isError reports whether a reply with a status of success is an error that a router sends in place
// of a reply. Nothing else is: what a service has answered in some other way, it may bill.
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

// most is the most that a request can have taken: a token is at least one byte, and the request or
// the model's window bounds the output.
func (m *Model) most(request []byte) event.Usage {
	var p struct {
		MaxTokens     int64 `json:"max_tokens"`
		MaxCompletion int64 `json:"max_completion_tokens"`
		N             int64 `json:"n"`
	}
	_ = json.Unmarshal(request, &p) // it is ours
	in, out := int64(len(request)), max(p.MaxTokens, p.MaxCompletion)
	if out <= 0 {
		out = maxOutput
	}
	if w := m.cfg.Window; w > 0 {
		in, out = min(in, w), min(out, w)
	}
	return event.Usage{In: min(in, maxTokens), Out: min(out, maxTokens/16) * min(max(p.N, 1), 16)}
}

// findUsage reads the usage out of a reply that may be cut, or be a stream of events. The last one
// counts, as a stream sums up. The key cannot occur inside of a text: there its quotes would be
// escaped.
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
