package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/respjson"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

func (m *Model) response(c *sdk.ChatCompletion, got *exchange) (*model.Response, error) {
	if c == nil || len(c.Choices) == 0 { // nil: the reply was "null"
		// Some routers send their upstream's error with a 200.
		if code, message := readError(got.reply); message != "" {
			status, shown := http.StatusInternalServerError, got.status
			var n int
			if _, err := fmt.Sscanf(code, "%d", &n); err == nil && n >= 400 && n < 600 {
				status, shown = n, n
			}
			return nil, &model.Error{
				Class: model.Classify(status, said(code, message)), After: got.after, HTTP: shown, ID: got.id, Err: errors.New(m.clean(message)),
			}
		}
		return nil, &model.Error{
			Class: model.Network, HTTP: got.status, ID: got.id,
			Err: fmt.Errorf("the reply of %s has no choices", m.host),
		}
	}
	choice := c.Choices[0]
	msg := choice.Message
	if !choice.JSON.Message.Valid() {
		return nil, &model.Error{Class: model.Network, HTTP: got.status, ID: got.id, Err: fmt.Errorf("the reply of %s has no message", m.host)}
	}
	// The SDK takes what is no string for one, and leaves out calls that are no list.
	content, thinking, ok := readContent(msg.JSON.Content.Raw())
	refusal, plain := readText(msg.JSON.Refusal.Raw())
	for _, x := range []struct {
		field string
		ok    bool
	}{{"content", ok}, {"refusal", plain}, {"tool_calls", msg.JSON.ToolCalls.Valid() || absent(msg.JSON.ToolCalls.Raw())}} {
		if !x.ok {
			return nil, &model.Error{
				Class: model.Network, HTTP: got.status, ID: got.id,
				Err: fmt.Errorf("the reply of %s has a message whose %s cannot be read", m.host, x.field),
			}
		}
	}
	out := &model.Response{
		ID: c.ID, RequestID: got.id, Model: c.Model, Stop: choice.FinishReason, Raw: got.reply, RawReq: got.request,
		Usage: usage(c.Usage), Reasoning: thinking,
	}
	if content != "" {
		out.Parts = event.Text(content)
	}
	if refusal != "" {
		out.Parts = append(out.Parts, event.Part{Text: refusal})
		out.Stop = "refusal"
	}
	for _, field := range []string{"reasoning_content", "reasoning"} {
		var text string
		if f, ok := msg.JSON.ExtraFields[field]; ok && json.Unmarshal([]byte(f.Raw()), &text) == nil && text != "" {
			out.Reasoning = text
			break
		}
	}
	var keep opaque
	if f, ok := msg.JSON.ExtraFields["reasoning_details"]; ok && f.Raw() != "null" && f.Raw() != "[]" {
		keep.Details = json.RawMessage(f.Raw())
	}
	ids := map[string]bool{}
	for i, tc := range msg.ToolCalls {
		call := event.ReplyCall{ID: tc.ID, Name: tc.Function.Name, Args: tc.Function.Arguments}
		var raw struct { // where servers differ from the SDK's types
			Function struct {
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
			Extra json.RawMessage `json:"extra_content"`
		}
		_ = json.Unmarshal([]byte(tc.RawJSON()), &raw)
		if a := raw.Function.Arguments; len(a) > 0 && a[0] == '{' {
			call.Args = string(a) // an object where a string belongs
		}
		if call.ID == "" || ids[call.ID] { // each answer must find its call
			call.ID = fmt.Sprintf("call_%s_%d", strings.TrimPrefix(c.ID, "chatcmpl-"), i)
		}
		ids[call.ID] = true
		if len(raw.Extra) > 0 {
			if keep.Calls == nil {
				keep.Calls = map[string]json.RawMessage{}
			}
			keep.Calls[call.ID] = raw.Extra
		}
		out.Calls = append(out.Calls, call)
	}
	if keep.Details != nil || keep.Calls != nil {
		b, err := json.Marshal(keep)
		if err != nil {
			return nil, &model.Error{Class: model.Network, HTTP: got.status, ID: got.id, Err: fmt.Errorf("the reply's extra fields: %w", err)}
		}
		out.Opaque = b
	}
	empty := len(out.Parts) == 0 && len(out.Calls) == 0
	switch {
	case empty && choice.FinishReason == "content_filter":
		return nil, &model.Error{
			Class: model.Refused, HTTP: got.status, ID: got.id,
			Err: errors.New("the service's content filter kept the reply back"),
		}
	case empty && choice.FinishReason == "error":
		return nil, &model.Error{Class: model.Overload, HTTP: got.status, ID: got.id, Err: errors.New("the service broke off")}
	}
	return out, nil
}

// absent reports whether a field is not there, or null.
func absent(raw string) bool { return raw == "" || raw == "null" }

// readText reads a field that is a string or absent.
func readText(raw string) (text string, ok bool) {
	return text, absent(raw) || json.Unmarshal([]byte(raw), &text) == nil
}

// readContent reads a message's content: a string, or a list of parts with text and, as with Mistral, the model's thinking.
// It is false for anything else, since half an answer must not be taken for the whole.
func readContent(raw string) (text, thinking string, ok bool) {
	if !strings.HasPrefix(raw, "[") {
		text, ok = readText(raw)
		return text, "", ok
	}
	var parts []struct {
		Type     string          `json:"type"`
		Text     *string         `json:"text"`
		Thinking json.RawMessage `json:"thinking"`
	}
	if json.Unmarshal([]byte(raw), &parts) != nil {
		return "", "", false
	}
	var said, thought strings.Builder
	for _, p := range parts {
		switch {
		case p.Type == "text" && p.Text != nil:
			said.WriteString(*p.Text)
		case p.Type == "thinking":
			// Parts with text, or a string. No answer depends on it, so that other forms do no harm.
			var texts []struct {
				Text string `json:"text"`
			}
			if json.Unmarshal(p.Thinking, &texts) == nil {
				for _, t := range texts {
					thought.WriteString(t.Text)
				}
			} else if t, ok := readText(string(p.Thinking)); ok {
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

// usage is what a service says that a reply took. Nothing of it counts as told where the cost cannot be read: the price list
// may name less than the service bills.
func usage(u sdk.CompletionUsage) event.Usage {
	usd, ok := cost(u)
	if !ok {
		return event.Usage{}
	}
	// Sums of what a service says must neither fall nor overflow: limits and budgets rest on them.
	out := event.Usage{
		In: tokens(u.PromptTokens), Out: tokens(u.CompletionTokens),
		Cached: tokens(u.PromptTokensDetails.CachedTokens), CacheWrite: tokens(u.PromptTokensDetails.CacheWriteTokens),
		Reasoning: tokens(u.CompletionTokensDetails.ReasoningTokens), Cost: usd,
	}
	for _, name := range []string{"prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"} {
		if out.Cached == 0 {
			out.Cached = extra(u.JSON.ExtraFields, name)
		}
	}
	if out.CacheWrite == 0 {
		out.CacheWrite = max(extra(u.JSON.ExtraFields, "cache_creation_input_tokens"),
			extra(u.PromptTokensDetails.JSON.ExtraFields, "cache_creation_input_tokens"))
	}
	// They are parts of the prompt's tokens. Where they are more, as with gateways that pass Anthropic's counts on, they are not.
	if cache := out.Cached + out.CacheWrite; u.PromptTokens >= 0 && cache > out.In {
		out.In += cache
	}
	// Reasoning is billed, and with some services (xAI, Gemini) not a part of the output. What a service says of the total shows it, also
	// where it says nothing of reasoning.
	switch rest := tokens(u.TotalTokens) - out.In; {
	case rest > out.Out:
		out.Out = rest
	case out.Reasoning > out.Out:
		out.Out += out.Reasoning
	}
	out.In, out.Out = tokens(out.In), tokens(out.Out)
	return out
}

// cost is what a service says that it bills, as OpenRouter does: a number, or one in a string; nil where it says nothing. It
// is false where that is no cost that can be believed.
func cost(u sdk.CompletionUsage) (*float64, bool) {
	raw := u.JSON.ExtraFields["cost"].Raw()
	if absent(raw) {
		return nil, true
	}
	text := raw
	if s, ok := readText(raw); ok {
		text = strings.TrimSpace(s)
	}
	usd, err := strconv.ParseFloat(text, 64)
	if err != nil || !(usd >= 0 && usd < maxCost) { // NaN is neither
		return nil, false
	}
	return &usd, true
}

// tokens bounds a count.
func tokens(n int64) int64 { return min(max(n, 0), maxTokens) }

// extra is a count that the SDK has no field for; 0 where it is absent.
func extra(fields map[string]respjson.Field, name string) (n int64) {
	if f, ok := fields[name]; ok && json.Unmarshal([]byte(f.Raw()), &n) == nil {
		return tokens(n)
	}
	return 0
}

// What a call may be said to have taken; nothing real comes near.
const (
	maxTokens = 1 << 40
	maxCost   = 1e9
)
