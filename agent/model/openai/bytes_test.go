package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/openai"
)

var update = flag.Bool("update", false, "write testdata/requests.jsonl anew")

// Requests stay the same byte for byte: a service's cache goes by the beginning of a request, and
// results of years are compared. testdata/requests.jsonl was written by the vendor's own library.
func TestRequestBytes(t *testing.T) {
	temp, topP, maxTok, seed, yes, no := 0.5, 1.0, int64(100), int64(7), true, false
	img := event.Part{Blob: &event.Blob{SHA256: "aa", Type: "image/png", Size: 3}}
	file := event.Part{Blob: &event.Blob{SHA256: "aa", Type: "application/pdf", Size: 3}}
	schema := json.RawMessage(`{"type":"object","required":["x"],"properties":{"x":{
		"type":"number","maximum":1e3,"description":"<b> & \u2028 é"}}}`)
	say := func(role, text string) model.Message { return model.Message{Role: role, Parts: event.Text(text)} }
	hostile := "<script>&amp;\u2028\u0001\"\\\x80 é 😀\n\t"
	answer := model.Message{
		Role: model.ToolRole, CallID: "1", Name: "a", Parts: []event.Part{{Text: hostile}, img, file},
	}
	called := model.Message{
		Role: model.Assistant, Reasoning: "hm", Parts: event.Text(hostile),
		Calls: []event.ReplyCall{
			{ID: "1", Name: "a", Args: `{"x": 1, "y": "<&>"}`}, {ID: "2", Name: "b c", Args: `{`},
		},
		Opaque: json.RawMessage(`{"reasoning_details":[{"z":1,"a":"<"}],"extra_content":{"1":{"sig":"<s>"}}}`),
	}
	extra := map[string]json.RawMessage{
		"top_k": []byte("5"), "chat_template_kwargs": []byte(`{"z":1,"enable_thinking":false}`), "a": []byte("null"),
	}
	replaces := map[string]json.RawMessage{"temperature": []byte("1"), "model": []byte(`"other"`)}
	cases := []struct {
		cfg openai.Config
		req model.Request
	}{
		{req: model.Request{Messages: []model.Message{say(model.User, hostile)}}},
		{req: model.Request{
			Messages: []model.Message{
				say(model.System, "sys"), {Role: model.User, Parts: []event.Part{{Text: "look"}, img}}, called, answer,
				{Role: model.ToolRole, CallID: "2"}, {Role: model.Assistant}, say(model.Assistant, "so"),
				{Role: model.User},
			},
			Tools: []model.Tool{{Name: "a", Description: "<does> a", Schema: schema}, {Name: "b"}}, Choice: "a",
			Params: model.Params{
				Temperature: &temp, TopP: &topP, MaxTokens: &maxTok, Seed: &seed, Stop: []string{"<", "END"},
				Effort:   "low",
				Parallel: &no,
			}}},
		{cfg: openai.Config{MaxTokens: "max_completion_tokens", Reasoning: "reasoning_content"}, req: model.Request{
			Messages: []model.Message{say(model.User, "x"), called},
			Tools:    []model.Tool{{Name: "a", Schema: schema}}, Choice: "required",
			Params: model.Params{MaxTokens: &maxTok, Parallel: &yes, Extra: extra}}},
		{cfg: openai.Config{MaxTokens: "num_predict", NoImages: true}, req: model.Request{
			Messages: []model.Message{{Role: model.User, Parts: []event.Part{{Text: "look"}, img}}, called, answer},
			Params:   model.Params{Temperature: new(float64), MaxTokens: &maxTok, Parallel: &yes, Extra: replaces}}},
	}
	var got bytes.Buffer
	for _, c := range cases {
		srv := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{Text: "hello"}))
		c.cfg.BaseURL = srv.URL
		c.cfg.Blob = func(context.Context, event.Blob) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader([]byte("PNG"))), nil
		}
		if _, err := client(t, c.cfg).Generate(t.Context(), &c.req); err != nil {
			t.Fatal(err)
		}
		got.Write(srv.Calls()[0].Raw)
		got.WriteByte('\n')
	}
	const name = "testdata/requests.jsonl"
	if *update {
		if err := os.WriteFile(name, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("-was +now:\n%s", d)
	}
}
