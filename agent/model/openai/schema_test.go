package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/openai"
)

// schema is one definition of the vendor's own description of its API.
func schema(t *testing.T, name string) *jsonschema.Resolved {
	t.Helper()
	data, err := os.ReadFile("testdata/chat-completions.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	s.Ref = "#/$defs/" + name
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Requests, and the replies of our test server, conform to the vendor's API description.
func TestVendorsDescription(t *testing.T) {
	requests, replies, errs := schema(t, "CreateChatCompletionRequest"), schema(t, "CreateChatCompletionResponse"),
		schema(t, "ErrorResponse")
	for _, bad := range []string{
		`{"model":"m"}`, `{"messages":[]}`, `{"model":"m","messages":[]}`,
		`{"model":"m","messages":[{"role":"tool","content":"x"}]}`,
		`{"model":"m","messages":[{"role":"user","content":[]}]}`,
		`{"model":"m","messages":[{"role":"user","content":"x"}],"stop":7}`,
	} {
		if err := requests.Validate(decode(t, []byte(bad))); err == nil {
			t.Fatalf("the description takes %s: it checks nothing", bad)
		}
	}
	temp, topP, maxTok, seed, no := 0.5, 0.9, int64(100), int64(7), false
	img := event.Part{Blob: &event.Blob{SHA256: "aa", Type: "image/png", Size: 3}}
	schemaJSON := json.RawMessage(`{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}`)
	for name, req := range map[string]*model.Request{
		"plain": hello(),
		"whole": {
			Messages: []model.Message{
				{Role: model.System, Parts: event.Text("sys")},
				{Role: model.User, Parts: []event.Part{{Text: "look"}, img}},
				{Role: model.Assistant, Parts: event.Text("hm"),
					Calls: []event.ReplyCall{{ID: "1", Name: "a", Args: `{"x":1}`}, {ID: "2", Name: "", Args: `{`}}},
				{Role: model.ToolRole, CallID: "1", Name: "a", Parts: []event.Part{{Text: "one"}, img}},
				{Role: model.ToolRole, CallID: "2", Parts: nil},
				{Role: model.Assistant, Parts: event.Text("so")},
				{Role: model.Assistant},
				{Role: model.User},
			},
			Tools:  []model.Tool{{Name: "a", Description: "does a", Schema: schemaJSON}, {Name: "b"}},
			Choice: "a",
			Params: model.Params{Temperature: &temp, TopP: &topP, MaxTokens: &maxTok, Seed: &seed,
				Stop: []string{"END"}, Effort: "low", Parallel: &no},
		},
		"required": {Messages: hello().Messages, Tools: []model.Tool{{Name: "a", Schema: schemaJSON}},
			Choice: "required"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{
				Text: "hello", Calls: []event.ReplyCall{{ID: "1", Name: "a", Args: "{}"}},
				Usage: event.Usage{In: 3, Out: 2, Cached: 1, Reasoning: 1},
			}))
			r, err := client(t, openai.Config{
				BaseURL: srv.URL, MaxTokens: "max_completion_tokens",
				Blob: func(context.Context, event.Blob) (io.ReadCloser, error) {
					return io.NopCloser(bytes.NewReader([]byte("PNG"))), nil
				},
			}).Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if err := requests.Validate(decode(t, srv.Calls()[0].Raw)); err != nil {
				t.Errorf("the request is not as described: %v\n%s", err, srv.Calls()[0].Raw)
			}
			if err := replies.Validate(decode(t, r.Raw)); err != nil {
				t.Errorf("the test server's reply is not as described: %v\n%s", err, r.Raw)
			}
		})
	}
	if err := errs.Validate(decode(t, []byte(
		`{"error":{"message":"m","type":"t","param":null,"code":"c"}}`))); err != nil {
		t.Errorf("the test server's errors are not as described: %v", err)
	}
}
