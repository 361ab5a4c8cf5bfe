package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/openai"
)

func client(t *testing.T, cfg openai.Config) model.Client {
	t.Helper()
	if cfg.Model == "" {
		cfg.Model = "test-model"
	}
	if cfg.Key == "" {
		cfg.Key = modeltest.Key
	}
	if cfg.HTTP == nil {
		cfg.HTTP = model.Transport()
		t.Cleanup(cfg.HTTP.CloseIdleConnections)
	}
	m, err := openai.New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	c, err := m.Client(model.Binding{})
	if err != nil {
		t.Fatalf("Client: %v", err)
	}
	return c
}

func TestConformance(t *testing.T) {
	modeltest.Conformance(t, func(t *testing.T, s modeltest.Scenario) model.Client {
		fault := map[modeltest.Scenario]modeltest.Fault{
			modeltest.Limited: modeltest.RateSeconds(2 * time.Second), modeltest.OutOfMoney: modeltest.Quota,
			modeltest.WrongKey: modeltest.Status(401, "invalid_api_key",
				"Incorrect API key provided: "+modeltest.Key+".\nFind yours elsewhere."),
			modeltest.Overlong: modeltest.TooLong, modeltest.Forbids: modeltest.Filtered,
			modeltest.Busy:   modeltest.Overloaded,
			modeltest.Breaks: modeltest.ServerError, modeltest.Malformed: modeltest.BadRequest,
			modeltest.CutsOff: modeltest.Cut(true),
			modeltest.Garbage: modeltest.InvalidJSON, modeltest.SaysNothing: modeltest.EmptyChoices,
			modeltest.Sleeps: modeltest.Slow(time.Minute), modeltest.Waits: modeltest.Slow(time.Minute),
		}[s]
		reply := modeltest.Reply{
			Text: "hello", Usage: event.Usage{In: 100, Cached: 40, Out: 20, Reasoning: 5}, Fault: fault,
		}
		if s == modeltest.CallsTools {
			reply = modeltest.Reply{Calls: []event.ReplyCall{{ID: "1", Name: "a", Args: `{"x":1}`},
				{ID: "1", Name: "b", Args: `{"x":`}}}
		}
		cfg := openai.Config{BaseURL: modeltest.NewServer(t, modeltest.Replies(reply)).URL}
		switch s {
		case modeltest.Dead:
			cfg.BaseURL = modeltest.DeadURL(t)
		case modeltest.Sleeps:
			cfg.Timeout = 200 * time.Millisecond
		}
		return client(t, cfg)
	})
}

func hello() *model.Request {
	return &model.Request{Messages: []model.Message{{Role: model.User, Parts: event.Text("hello")}}}
}

func TestErrors(t *testing.T) {
	tests := map[string]struct {
		fault modeltest.Fault
		class string
		after time.Duration
		text  string
	}{
		"429 bare":         {modeltest.Rate, model.Rate, 0, "Rate limit"},
		"429 milliseconds": {modeltest.RateMillis(1500 * time.Millisecond), model.Rate, 1500 * time.Millisecond, ""},
		"429 date":         {modeltest.RateDate(90 * time.Second), model.Rate, 90 * time.Second, ""},
		"429 past date":    {modeltest.RateDate(-time.Hour), model.Rate, 0, ""},
		"429 nonsense": {modeltest.Status(429, "", "", "Retry-After", "soon"), model.Rate, 0,
			"Too Many Requests"},
		"429 NaN":      {modeltest.Status(429, "", "", "Retry-After", "NaN"), model.Rate, 0, ""},
		"429 for ever": {modeltest.Status(429, "", "", "Retry-After", "1e300"), model.Rate, 24 * time.Hour, ""},
		"402":          {modeltest.Status(402, "", "Insufficient Balance"), model.Quota, 0, ""},
		"403":          {modeltest.NoAccess, model.Auth, 0, ""},
		"404": {modeltest.Status(404, "model_not_found", "The model does not exist"), model.Missing, 0,
			""},
		"404 of a proxy": {raw(404, "<html>nothing here</html>"), model.Missing, 0, "Not Found"},
		"413":            {modeltest.Status(413, "", ""), model.Invalid, 0, ""},
		"413 of a proxy": {raw(413, "<html>nginx</html>"), model.Invalid, 0, "Request Entity Too Large"},
		"413, its words": {modeltest.Status(413, "", "This prompt is too long for the model"), model.Context, 0,
			""},
		"503 with wait": {modeltest.Status(503, "", "", "Retry-After", "7"), model.Overload, 7 * time.Second, ""},
		"llama.cpp": {modeltest.Status(500, "", "the request exceeds the available context size"),
			model.Context, 0, ""},
		"cut without length": {modeltest.Cut(false), model.Network, 0, "not JSON"},
		"dropped":            {modeltest.Drop, model.Network, 0, ""},
		"HTML":               {modeltest.HTML, model.Network, 0, "not JSON"},
		"empty body":         {modeltest.EmptyBody, model.Network, 0, ""},
		"error with 200":     {modeltest.WrappedRate, model.Rate, 0, "upstream"},
		"null":               {modeltest.Body("application/json", "null"), model.Network, 0, ""},
		"vLLM": {raw(400,
			`{"object":"error","message":"This model's maximum context length is 10","type":"BadRequestError","code":400}`), model.Context, 0, ""},
		"FastAPI":       {raw(422, `{"detail":[{"msg":"field required"}]}`), model.Invalid, 0, "field required"},
		"plain text":    {raw(502, "upstream went away"), model.Overload, 0, "upstream went away"},
		"error page":    {raw(502, "<html>oh</html>"), model.Overload, 0, "Bad Gateway"},
		"error as text": {raw(400, `{"error":"model not loaded"}`), model.Invalid, 0, "model not loaded"},
		"filter with 200": {modeltest.Body("application/json",
			`{"choices":[{"finish_reason":"content_filter","message":{"role":"assistant","content":""}}]}`),
			model.Refused, 0, ""},
		"broke off with 200": {modeltest.Body("application/json",
			`{"choices":[{"finish_reason":"error","message":{"role":"assistant","content":null}}]}`), model.Overload, 0,
			""},
		"message of a screen": {modeltest.Status(400, "x", strings.Repeat("long ", 1000)), model.Invalid, 0, "…"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{Text: "hello", Fault: tt.fault}))
			_, err := client(t, openai.Config{BaseURL: srv.URL}).Generate(t.Context(), hello())
			var e *model.Error
			if !errors.As(err, &e) {
				t.Fatalf("Generate = %v, want a *model.Error", err)
			}
			if e.Class != tt.class || e.After != tt.after || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got class %q, wait %v: %v; want %q, %v, …%s…", e.Class, e.After, err, tt.class, tt.after,
					tt.text)
			}
			if len(err.Error()) > 700 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			if n := len(srv.Calls()); n != 1 {
				t.Errorf("%d requests, want 1: a client makes one try", n)
			}
		})
	}
}

func raw(status int, body string) modeltest.Fault {
	return modeltest.RawStatus(status, body)
}

func TestRequestOnTheWire(t *testing.T) {
	srv := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{Text: "ok"}))
	temp, maxTok, yes := 0.0, int64(100), true
	c := client(t, openai.Config{
		BaseURL: srv.URL, Reasoning: "reasoning_content", Headers: map[string]string{"X-Team": "evals"},
		Params: model.Params{Temperature: &temp, Extra: map[string]json.RawMessage{"top_k": []byte("5")}},
		Blob: func(context.Context, event.Blob) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader([]byte("PNG"))), nil
		},
	})
	img := event.Part{Blob: &event.Blob{SHA256: "aa", Type: "image/png", Size: 3}}
	_, err := c.Generate(t.Context(), &model.Request{
		Messages: []model.Message{
			{Role: model.System, Parts: event.Text("sys")},
			{Role: model.User, Parts: []event.Part{{Text: "look"}, img}},
			{Role: model.Assistant, Reasoning: "hm", Parts: event.Text("calling"), Calls: []event.ReplyCall{
				{ID: "c1", Name: "run", Args: `{"a":1}`}, {ID: "c2", Name: "bad name!", Args: `{"a":`},
			}},
			{Role: model.ToolRole, CallID: "c1", Name: "run", Parts: []event.Part{{Text: "out"}, img}},
			{Role: model.ToolRole, CallID: "c2", Parts: event.Text("bad")},
			{Role: model.User, Parts: event.Text("go on")},
		},
		Tools: []model.Tool{{Name: "run", Description: "runs",
			Schema: []byte(`{"type":"object","properties":{"a":{"type":"integer"}}}`)}},
		Choice: "auto",
		Params: model.Params{MaxTokens: &maxTok, Parallel: &yes, Stop: []string{"X"}, Effort: "low"},
	})
	if err != nil {
		t.Fatalf("Generate: %v", err)
	}
	call := srv.Calls()[0]
	if got := call.Header.Get("Authorization"); got != "Bearer "+modeltest.Key {
		t.Errorf("Authorization %q", got)
	}
	if call.Header.Get("X-Team") != "evals" {
		t.Error("the configured header is missing")
	}
	want := `{
	 "model":"test-model","temperature":0,"max_tokens":100,"parallel_tool_calls":true,"stop":["X"],"reasoning_effort":"low",
	 "top_k":5,"tool_choice":"auto",
	 "tools":[{"type":"function","function":{"name":"run","description":"runs","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}],
	 "messages":[
	  {"role":"system","content":"sys"},
	  {"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:image/png;base64,UE5H"}}]},
	  {"role":"assistant","content":"calling","reasoning_content":"hm","tool_calls":[
	   {"id":"c1","type":"function","function":{"name":"run","arguments":"{\"a\":1}"}},
	   {"id":"c2","type":"function","function":{"name":"bad_name_","arguments":"{}"}}]},
	  {"role":"tool","tool_call_id":"c1","content":"out"},
	  {"role":"tool","tool_call_id":"c2","content":"bad"},
	  {"role":"user","content":[{"type":"text","text":"Images of run:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,UE5H"}}]},
	  {"role":"user","content":"go on"}]}`
	if d := cmp.Diff(decode(t, []byte(want)), decode(t, call.Raw)); d != "" {
		t.Errorf("request (-want +got):\n%s", d)
	}
}

func decode(t *testing.T, b []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("decoding %s: %v", b, err)
	}
	return v
}

func TestReplies(t *testing.T) {
	one := func(body string) *model.Response {
		t.Helper()
		srv := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{Fault: modeltest.Body("text/plain", body)}))
		r, err := client(t, openai.Config{BaseURL: srv.URL}).Generate(t.Context(), hello())
		if err != nil {
			t.Fatalf("Generate: %v", err)
		}
		return r
	}
	r := one(`{"id":"1","model":"m","choices":[{"finish_reason":"stop","message":{"content":null,"refusal":"I will not."}}]}`)
	if event.PlainText(r.Parts) != "I will not." || r.Stop != "refusal" {
		t.Errorf("refusal: %+v", r)
	}
	r = one(`{"choices":[{"message":{"content":"x","reasoning":"because"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"prompt_cache_hit_tokens":4,"cost":0.25}}`)
	if r.Reasoning != "because" || r.Usage.Cached != 4 || r.Usage.Cost == nil || *r.Usage.Cost != 0.25 {
		t.Errorf("other servers' fields: %+v", r)
	}
	r = one(`{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":-9,"completion_tokens":9223372036854775807,"prompt_cache_hit_tokens":-1}}`)
	if r.Usage.In != 0 || r.Usage.Out != 1<<40 || r.Usage.Cached != 0 {
		t.Errorf("numbers that nobody believes: %+v", r.Usage)
	}
	for _, body := range []string{`{"choices":[null]}`, `{"choices":[{"message":null}]}`, `{"choices":[{}]}`} {
		srv := modeltest.NewServer(t, modeltest.Replies(
			modeltest.Reply{Fault: modeltest.Body("application/json", body)}))
		_, err := client(t, openai.Config{BaseURL: srv.URL}).Generate(t.Context(), hello())
		if me := (*model.Error)(nil); !errors.As(err, &me) || me.Class != model.Network {
			t.Errorf("%s: %v", body, err)
		}
	}
	r = one(`{"id":"9","choices":[{"message":{"content":"","reasoning_details":[{"type":"x"}],"tool_calls":[
		{"type":"function","function":{"name":"a","arguments":{"x":1}},"extra_content":{"sig":"s"}}]}}]}`)
	if len(r.Calls) != 1 || r.Calls[0].Args != `{"x":1}` || r.Calls[0].ID == "" {
		t.Errorf("arguments as an object, no id: %+v", r.Calls)
	}
	// What the server wants to see again comes back to it.
	srv := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{Text: "ok"}))
	req := hello()
	req.Messages = append(req.Messages, model.Message{Role: model.Assistant, Calls: r.Calls, Opaque: r.Opaque},
		model.Message{Role: model.ToolRole, CallID: r.Calls[0].ID, Parts: event.Text("ok")})
	if _, err := client(t, openai.Config{BaseURL: srv.URL}).Generate(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	sent := string(srv.Calls()[0].Raw)
	if !strings.Contains(sent, `"sig":"s"`) || !strings.Contains(sent, `"reasoning_details":[{"type":"x"}]`) {
		t.Errorf("lost on the way back: %s", sent)
	}
}

// A message's content is a string or a list of parts. What is something else is not graded as its
// own JSON.
func TestContent(t *testing.T) {
	for message, want := range map[string]struct{ text, reasoning, err string }{
		`{"content":"hello"}`: {text: "hello"},
		`{"content":[]}`:      {},
		`{"content":[{"type":"text","text":"hello "},{"type":"text","text":"world","annotations":[]}]}`: {
			text: "hello world"},
		`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"},{"type":"text","text":"m"}]},{"type":"text","text":"2"}]}`: {
			text: "2", reasoning: "hmm"},
		`{"content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"reasoning","text":"m"},{"type":"text","text":"2"}]}`: {
			text: "2", reasoning: "hmm"},
		`{"content":[{"type":"thinking"},{"type":"thinking","thinking":3},{"type":"text","text":"2"}]}`: {
			text: "2"},
		`{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"2"}],"reasoning":"because"}`: {
			text: "2", reasoning: "because"},
		`{"content":5}`:    {err: "content"},
		`{"content":true}`: {err: "content"},
		`{"content":{"type":"text","text":"hello"}}`:       {err: "content"},
		`{"content":["hello"]}`:                            {err: "content"},
		`{"content":[null]}`:                               {err: "content"},
		`{"content":[{"type":"text"}]}`:                    {err: "content"},
		`{"content":[{"type":"text","text":5}]}`:           {err: "content"},
		`{"content":[{"type":"image_url","image_url":1}]}`: {err: "content"},
		`{"content":"hello","refusal":false}`:              {err: "refusal"},
		`{"content":"hello","refusal":[]}`:                 {err: "refusal"},
		`{"content":"hello","refusal":null}`:               {text: "hello"},
		`{"content":"hello","tool_calls":{"id":"1"}}`:      {err: "tool_calls"},
		`{"content":"hello","tool_calls":[5]}`:             {err: "tool_calls"},
		`{"content":"hello","tool_calls":[]}`:              {text: "hello"},
		`{"content":"hello","tool_calls":null}`:            {text: "hello"},
	} {
		srv := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{
			Fault: modeltest.Body("application/json", `{"choices":[{"finish_reason":"stop","message":`+message+`}]}`),
		}))
		r, err := client(t, openai.Config{BaseURL: srv.URL}).Generate(t.Context(), hello())
		switch e := (*model.Error)(nil); {
		case want.err != "":
			if !errors.As(err, &e) || e.Class != model.Network ||
				!strings.Contains(err.Error(), "a message whose "+want.err+" cannot be read") {
				t.Errorf("%s: %+v, %v", message, r, err)
			}
		case err != nil:
			t.Errorf("%s: %v", message, err)
		case event.PlainText(r.Parts) != want.text || r.Reasoning != want.reasoning:
			t.Errorf("%s: %q, reasoning %q; want %q, %q", message, event.PlainText(r.Parts), r.Reasoning, want.text,
				want.reasoning)
		}
	}
}

// Messages are shown without the key, but a key of a letter, as servers of one's own are given,
// leaves them whole.
func TestKeyInMessages(t *testing.T) {
	for key, want := range map[string]string{"e": "the key e is never right",
		"sk-0123456789": "the key [secret] is never right"} {
		srv := modeltest.NewServer(t, modeltest.Replies(
			modeltest.Reply{Fault: modeltest.Status(400, "x", "the key "+key+" is never right")}))
		m, err := openai.New(openai.Config{Model: "m", BaseURL: srv.URL, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Generate(t.Context(), hello()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("key %q: %v", key, err)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []openai.Config{
		{}, {Model: "m", BaseURL: "localhost:8000"}, {Model: "m", BaseURL: "http://user:secret@host/v1"},
		{Model: "m", BaseURL: "ftp://x"},
	} {
		_, err := openai.New(cfg)
		if err == nil {
			t.Errorf("New(%+v) took it", cfg)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error holds a secret: %v", err)
		}
	}
	t.Setenv("OPENAI_API_KEY", "sk-from-the-environment")
	t.Setenv("OPENAI_BASE_URL", "http://elsewhere.invalid/v1")
	srv := modeltest.NewServer(t, modeltest.Replies(modeltest.Reply{Text: "ok"}))
	m, err := openai.New(openai.Config{Model: "m", BaseURL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Generate(t.Context(), hello()); err != nil {
		t.Fatal(err)
	}
	if got := srv.Calls()[0].Header.Get("Authorization"); got != "" {
		t.Errorf("a key came from the environment: %q", got)
	}
}
