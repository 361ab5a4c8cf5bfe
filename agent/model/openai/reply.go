package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

func (m *Model) response(got *exchange) (*model.Response, error) {
	failed := func(class string, err error) error {
		return &model.Error{Class: class, HTTP: got.status, ID: got.id, Err: err}
	}
	network := func(format string, args ...any) error { return failed(model.Network, fmt.Errorf(format, args...)) }
	var c chatReply
	if err := decode(got.reply, &c); err != nil {
		return nil, network("the reply of %s is not JSON (%d bytes): %s", m.host, len(got.reply), m.clean(err.Error()))
	}
	if len(c.Choices) == 0 {
		// Some routers send an upstream error with status 200.
		if code, message := readError(got.reply); message != "" {
			status, shown := http.StatusInternalServerError, got.status
			var n int
			if _, err := fmt.Sscanf(code, "%d", &n); err == nil && n >= 400 && n < 600 {
				status, shown = n, n
			}
			return nil, &model.Error{
				Class: model.Classify(status, said(code, message)), After: got.after, HTTP: shown, ID: got.id,
				Err: errors.New(m.clean(message)),
			}
		}
		return nil, network("the reply of %s has no choices", m.host)
	}
	choice := c.Choices[0]
	var msg replyMessage
	if absent(choice.Message) || choice.Message[0] != '{' || decode(choice.Message, &msg) != nil {
		return nil, network("the reply of %s has no message", m.host)
	}
	content, thinking, ok := readContent(msg.Content)
	refusal, plain := readText(msg.Refusal)
	var calls []replyCall
	listed := absent(msg.ToolCalls) || json.Unmarshal(msg.ToolCalls, &calls) == nil
	for _, x := range []struct {
		field string
		ok    bool
	}{{"content", ok}, {"refusal", plain}, {"tool_calls", listed}} {
		if !x.ok { // do not take part of an answer for the whole
			return nil, network("the reply of %s has a message whose %s cannot be read", m.host, x.field)
		}
	}
	out := &model.Response{
		ID: string(c.ID), RequestID: got.id, Model: string(c.Model), Stop: string(choice.FinishReason),
		Raw: got.reply, RawReq: got.request,
		Usage: usage(c.Usage), Reasoning: thinking,
	}
	if content != "" {
		out.Parts = event.Text(content)
	}
	if refusal != "" {
		out.Parts = append(out.Parts, event.Part{Text: refusal})
		out.Stop = "refusal"
	}
	if r := cmp.Or(msg.ReasoningContent, msg.Reasoning); r != "" {
		out.Reasoning = string(r)
	}
	var keep opaque
	if d := msg.ReasoningDetails; !absent(d) && string(d) != "[]" {
		keep.Details = d
	}
	ids := map[string]bool{}
	for i, tc := range calls {
		call := event.ReplyCall{ID: string(tc.ID), Name: string(tc.Function.Name)}
		if a := tc.Function.Arguments; len(a) > 0 && a[0] == '{' {
			call.Args = string(a)
		} else {
			call.Args, _ = readText(a)
		}
		if call.ID == "" || ids[call.ID] { // each result must match exactly one call
			call.ID = fmt.Sprintf("call_%s_%d", strings.TrimPrefix(string(c.ID), "chatcmpl-"), i)
		}
		ids[call.ID] = true
		if len(tc.Extra) > 0 {
			if keep.Calls == nil {
				keep.Calls = map[string]json.RawMessage{}
			}
			keep.Calls[call.ID] = tc.Extra
		}
		out.Calls = append(out.Calls, call)
	}
	if keep.Details != nil || keep.Calls != nil {
		b, err := json.Marshal(keep)
		if err != nil {
			return nil, network("the reply's extra fields: %w", err)
		}
		out.Opaque = b
	}
	empty := len(out.Parts) == 0 && len(out.Calls) == 0
	switch {
	case empty && choice.FinishReason == "content_filter":
		return nil, failed(model.Refused, errors.New("the service's content filter kept the reply back"))
	case empty && choice.FinishReason == "error":
		return nil, failed(model.Overload, errors.New("the service broke off"))
	}
	return out, nil
}

// readContent decodes a message's content: a string, or a list of parts with text and, with
// Mistral, the model's thinking. It returns false for anything else, because part of an answer must
// not be taken for the whole.
func readContent(raw json.RawMessage) (text, thinking string, ok bool) {
	if len(raw) == 0 || raw[0] != '[' {
		text, ok = readText(raw)
		return text, "", ok
	}
	var parts []struct {
		Type     string          `json:"type"`
		Text     *string         `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", "", false
	}
	var said, thought strings.Builder
	for _, p := range parts {
		switch {
		case p.Type == "text" && p.Text != nil:
			said.WriteString(*p.Text)
		case p.Type == "thinking":
			// Parts with text, or a string. Other forms are ignored, because no answer depends on
			// them.
			var texts []struct {
				Text string `json:"text"`
			}
			if json.Unmarshal(p.Thinking, &texts) == nil {
				for _, t := range texts {
					thought.WriteString(t.Text)
				}
			} else if t, ok := readText(p.Thinking); ok {
				thought.WriteString(t)
			}
		case p.Type == "reasoning":
			if p.Text != nil {
				thought.WriteString(*p.Text)
			}
		default:
			return "", "", false
		}
	}
	return said.String(), thought.String(), true
}

// usage converts the usage that a service reports for a reply. If the reported cost cannot be
// parsed, none of the usage is taken as reported, because the price list may be lower than what the
// service bills.
func usage(u spent) event.Usage {
	usd, ok := cost(u)
	if !ok {
		return event.Usage{}
	}
	// Bound reported counts so that sums neither decrease nor overflow: limits and budgets depend
	// on them.
	out := event.Usage{
		In: tokens(u.PromptTokens), Out: tokens(u.CompletionTokens),
		Cached: cmp.Or(tokens(u.PromptDetails.Cached), tokens(u.CacheHit), tokens(u.Cached), tokens(u.CacheRead)),
		CacheWrite: tokens(cmp.Or(max(u.PromptDetails.CacheWrite, 0),
			max(u.CacheCreation, u.PromptDetails.CacheCreation))),
		Reasoning: tokens(u.CompletionDetails.Reasoning), Cost: usd,
	}
	// Cached tokens are part of the prompt's tokens. If they are more than those, they are not:
	// some gateways pass on Anthropic's counts.
	if cache := out.Cached + out.CacheWrite; u.PromptTokens >= 0 && cache > out.In {
		out.In += cache
	}
	// Reasoning is billed, and some services (xAI, Gemini) do not include it in the output. The
	// reported total shows this, even if the service does not report reasoning.
	switch rest := tokens(u.TotalTokens) - out.In; {
	case rest > out.Out:
		out.Out = rest
	case out.Reasoning > out.Out:
		out.Out += out.Reasoning
	}
	out.In, out.Out = min(out.In, maxTokens), min(out.Out, maxTokens)
	return out
}

// cost returns the cost that a service reports, as OpenRouter does: a number or a string with a
// number; nil if there is none. It returns false if the value is not a plausible cost.
func cost(u spent) (*float64, bool) {
	if absent(u.Cost) {
		return nil, true
	}
	text := string(u.Cost)
	if s, ok := readText(u.Cost); ok {
		text = strings.TrimSpace(s)
	}
	usd, err := strconv.ParseFloat(text, 64)
	if err != nil || !(usd >= 0 && usd < maxCost) { // also false for NaN
		return nil, false
	}
	return &usd, true
}

// tokens limits a count to 0 … maxTokens.
func tokens(n count) int64 { return int64(min(max(n, 0), maxTokens)) }

// Upper limits of what a call may report, far above any real value.
const (
	maxTokens = 1 << 40
	maxCost   = 1e9
)
