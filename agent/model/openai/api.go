package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
)

// These types are the wire format, limited to the fields that are used. The fields have the order
// of the vendor's library, which must be kept, because services cache requests by their prefix.
// https://platform.openai.com/docs/api-reference/chat

// A chatRequest is the body of POST /chat/completions.
type chatRequest struct {
	Messages            []json.RawMessage `json:"messages"`
	Model               string            `json:"model"`
	MaxCompletionTokens *int64            `json:"max_completion_tokens,omitempty"`
	MaxTokens           *int64            `json:"max_tokens,omitempty"`
	Seed                *int64            `json:"seed,omitempty"`
	Temperature         *float64          `json:"temperature,omitempty"`
	TopP                *float64          `json:"top_p,omitempty"`
	ParallelToolCalls   *bool             `json:"parallel_tool_calls,omitempty"`
	ReasoningEffort     string            `json:"reasoning_effort,omitempty"`
	Stop                []string          `json:"stop,omitempty"`
	ToolChoice          any               `json:"tool_choice,omitempty"` // a string or a tool
	Tools               []tool            `json:"tools,omitempty"`
}

type tool struct {
	Function function `json:"function"`
	Type     string   `json:"type"` // "function"
}

type function struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Parameters  map[string]any `json:"parameters,omitempty"`
}

type message struct {
	Content    any               `json:"content,omitempty"` // a string or a list of parts; may be nil
	ToolCalls  []json.RawMessage `json:"tool_calls,omitempty"`
	ToolCallID string            `json:"tool_call_id,omitempty"`
	Role       string            `json:"role"`
}

type part struct {
	Text  *string   `json:"text,omitempty"`
	Image *imageURL `json:"image_url,omitempty"`
	Type  string    `json:"type"` // "text", "image_url"
}

type imageURL struct {
	URL string `json:"url"`
}

type toolCall struct {
	ID       string `json:"id"`
	Function struct {
		Arguments string `json:"arguments"`
		Name      string `json:"name"`
	} `json:"function"`
	Type string `json:"type"` // "function"
}

// A chatReply is a response. Servers leave fields out and change their types. A value of a wrong
// type counts as absent, unless the reply is meaningless without it.
type chatReply struct {
	ID      text  `json:"id"`
	Model   text  `json:"model"`
	Usage   spent `json:"usage"`
	Choices []struct {
		FinishReason text            `json:"finish_reason"`
		Message      json.RawMessage `json:"message"`
	} `json:"choices"`
}

type replyMessage struct {
	Content          json.RawMessage `json:"content"`
	Refusal          json.RawMessage `json:"refusal"`
	ToolCalls        json.RawMessage `json:"tool_calls"`
	ReasoningContent text            `json:"reasoning_content"`
	Reasoning        text            `json:"reasoning"`
	ReasoningDetails json.RawMessage `json:"reasoning_details"`
}

type replyCall struct {
	ID       text `json:"id"`
	Function struct {
		Name      text            `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // a string; some servers send the object itself
	} `json:"function"`
	Extra json.RawMessage `json:"extra_content"`
}

// spent is the usage of a reply, with the field names of several services.
type spent struct {
	PromptTokens     count           `json:"prompt_tokens"`
	CompletionTokens count           `json:"completion_tokens"`
	TotalTokens      count           `json:"total_tokens"`
	Cost             json.RawMessage `json:"cost"`
	PromptDetails    struct {
		Cached        count `json:"cached_tokens"`
		CacheWrite    count `json:"cache_write_tokens"`
		CacheCreation count `json:"cache_creation_input_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		Reasoning count `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	CacheHit      count `json:"prompt_cache_hit_tokens"`
	Cached        count `json:"cached_tokens"`
	CacheRead     count `json:"cache_read_input_tokens"`
	CacheCreation count `json:"cache_creation_input_tokens"`
}

// text decodes a JSON string; any other value becomes "".
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*t = text(s)
	}
	return nil
}

// count decodes a number of tokens, also from a string or a fraction; any other value becomes 0.
type count int64

func (c *count) UnmarshalJSON(b []byte) error {
	s := string(bytes.Trim(b, `"`))
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		*c = count(n)
	} else if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) {
		*c = count(min(max(f, -math.MaxInt64/2), math.MaxInt64/2))
	}
	return nil
}

// encode encodes v as JSON with additional fields. A field that v has too is replaced in its place;
// the others follow in sorted order.
func encode(v any, further map[string]json.RawMessage) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	out := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(further) == 0 {
		return out, nil
	}
	d := json.NewDecoder(bytes.NewReader(out))
	if _, err := d.Token(); err != nil { // start of the object
		return nil, err
	}
	left := maps.Clone(further)
	var fields [][]byte
	field := func(name string, value json.RawMessage) error {
		key, err := json.Marshal(name)
		fields = append(fields, slices.Concat(key, []byte(":"), value))
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if v, ok := left[key.(string)]; ok {
			value = v
			delete(left, key.(string))
		}
		if err := field(key.(string), value); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		value, err := json.Marshal(left[name])
		if err != nil {
			return nil, err
		}
		if err := field(name, value); err != nil {
			return nil, err
		}
	}
	return slices.Concat([]byte("{"), bytes.Join(fields, []byte(",")), []byte("}")), nil
}

// decode decodes JSON into v. It skips values whose type does not match v.
func decode(data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if _, ok := err.(*json.UnmarshalTypeError); ok {
		return nil
	}
	return err
}

// absent reports whether a field is missing or null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// readText decodes a field that is a string or absent.
func readText(raw json.RawMessage) (s string, ok bool) {
	return s, absent(raw) || json.Unmarshal(raw, &s) == nil
}
