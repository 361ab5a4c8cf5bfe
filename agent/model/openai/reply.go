package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	out := &model.Response{
		ID: c.ID, RequestID: got.id, Model: c.Model, Stop: choice.FinishReason, Raw: got.reply, RawReq: got.request,
		Usage: usage(c.Usage),
	}
	if msg.Content != "" {
		out.Parts = event.Text(msg.Content)
	}
	if msg.Refusal != "" {
		out.Parts = append(out.Parts, event.Part{Text: msg.Refusal})
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

func usage(u sdk.CompletionUsage) event.Usage {
	out := event.Usage{
		In: u.PromptTokens, Out: u.CompletionTokens,
		Cached: u.PromptTokensDetails.CachedTokens, CacheWrite: u.PromptTokensDetails.CacheWriteTokens,
		Reasoning: u.CompletionTokensDetails.ReasoningTokens,
	}
	for _, name := range []string{"prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"} {
		if out.Cached <= 0 {
			out.Cached = extra(u.JSON.ExtraFields, name)
		}
	}
	if out.CacheWrite <= 0 {
		out.CacheWrite = max(extra(u.JSON.ExtraFields, "cache_creation_input_tokens"),
			extra(u.PromptTokensDetails.JSON.ExtraFields, "cache_creation_input_tokens"))
	}
	// They are parts of the prompt's tokens. Where they are more, as with gateways that pass Anthropic's counts on, they are not.
	if cache := min(max(out.Cached, 0), maxTokens) + min(max(out.CacheWrite, 0), maxTokens); out.In >= 0 && cache > out.In {
		out.In += cache
	}
	// Reasoning is billed, and with some services (xAI, Gemini) not a part of the output. What a service says of the total shows it, also
	// where it says nothing of reasoning.
	switch r := out.Reasoning; {
	case u.TotalTokens-max(out.In, 0) > max(out.Out, 0):
		out.Out = u.TotalTokens - max(out.In, 0)
	case r > out.Out:
		out.Out += r
	}
	if f, ok := u.JSON.ExtraFields["cost"]; ok { // OpenRouter
		var usd float64
		if json.Unmarshal([]byte(f.Raw()), &usd) == nil && usd >= 0 && usd < maxCost {
			out.Cost = &usd
		}
	}
	// Sums of what a service says must neither fall nor overflow: limits and budgets rest on them.
	for _, n := range []*int64{&out.In, &out.Out, &out.Cached, &out.CacheWrite, &out.Reasoning} {
		*n = min(max(*n, 0), maxTokens)
	}
	return out
}

// extra is a count that the SDK has no field for; 0 where it is absent.
func extra(fields map[string]respjson.Field, name string) (n int64) {
	if f, ok := fields[name]; ok && json.Unmarshal([]byte(f.Raw()), &n) == nil {
		return n
	}
	return 0
}

// What a call may be said to have taken; nothing real comes near.
const (
	maxTokens = 1 << 40
	maxCost   = 1e9
)
