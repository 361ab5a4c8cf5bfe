package ollama

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
)

const hello = `{"model":"m","message":{"role":"assistant","content":"hello"},"done":true,"done_reason":"stop","prompt_eval_count":100,"eval_count":20}`

const calls = `{"model":"m","message":{"role":"assistant","content":"","tool_calls":[
	{"function":{"name":"a","arguments":{"x":1}}},{"function":{"name":"b","arguments":{}}}]},"done":true,"done_reason":"stop"}`

// faults are the scenarios in which something goes wrong, in Ollama's words.
var faults = map[modeltest.Scenario]modeltest.Fault{
	modeltest.Limited:     modeltest.RateSeconds(2 * time.Second),
	modeltest.OutOfMoney:  modeltest.RawStatus(402, `{"error":"this model needs a subscription"}`),
	modeltest.WrongKey:    modeltest.RawStatus(401, `{"error":"unauthorized: `+modeltest.Key+`"}`),
	modeltest.Overlong:    modeltest.RawStatus(400, `{"error":"the input length exceeds the context length"}`),
	modeltest.Busy:        modeltest.RawStatus(529, `{"error":"server busy"}`),
	modeltest.Breaks:      modeltest.RawStatus(500, `{"error":"llama runner process\nhas terminated"}`),
	modeltest.Malformed:   modeltest.RawStatus(400, `{"error":"invalid options"}`),
	modeltest.CutsOff:     modeltest.Cut(true),
	modeltest.Garbage:     modeltest.Body("application/json", hello[:40]),
	modeltest.SaysNothing: modeltest.Body("application/json", `{"done":true}`),
	modeltest.Sleeps:      modeltest.Slow(time.Minute),
	modeltest.Waits:       modeltest.Slow(time.Minute),
}

func TestConformance(t *testing.T) {
	modeltest.Conformance(t, func(t *testing.T, s modeltest.Scenario) model.Client {
		text := hello
		if s == modeltest.CallsTools {
			text = calls
		}
		service := model.Service{Name: "m", BaseURL: serve(t, text, faults[s], nil), Key: modeltest.Key,
			HTTP: model.Transport()}
		t.Cleanup(service.HTTP.CloseIdleConnections)
		switch s {
		case modeltest.Dead:
			service.BaseURL = modeltest.DeadURL(t)
		case modeltest.Sleeps:
			service.Timeout = 200 * time.Millisecond
		}
		m, err := New(service)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}, modeltest.Forbids, modeltest.CachedTokens, modeltest.ReasoningTokens, modeltest.BrokenArguments)
}

// serve starts a server that answers with a text, or with a fault. got is given the last request.
func serve(t *testing.T, text string, fault modeltest.Fault, got *request) string {
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/chat" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(text))
	})
	if got == nil {
		got = new(request)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // only then does the server notice that the client has gone
		json.Unmarshal(body, got)
		if fault != nil {
			fault(w, r, ok)
			return
		}
		ok(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// The request says all that the conversation, the configuration and the agent say.
func TestRequest(t *testing.T) {
	var got request
	temperature, most := 0.5, int64(7)
	m, err := New(model.Service{Name: "m", BaseURL: serve(t, hello, nil, &got), HTTP: http.DefaultClient,
		Params: model.Params{MaxTokens: &most}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Generate(t.Context(), &model.Request{
		Messages: []model.Message{
			{Role: model.User, Parts: event.Text("hello")},
			{Role: model.Assistant, Calls: []event.ReplyCall{{ID: "1", Name: "look", Args: `{"at":1}`}}},
			{Role: model.ToolRole, CallID: "1", Name: "look", Parts: event.Text("nothing")},
		},
		Tools:  []model.Tool{{Name: "look", Description: "looks", Schema: []byte(`{"type":"object"}`)}},
		Params: model.Params{Temperature: &temperature},
	})
	if err != nil {
		t.Fatal(err)
	}
	have, _ := json.Marshal(got)
	want := `{"model":"m","messages":[{"role":"user","content":"hello"},` +
		`{"role":"assistant","content":"","tool_calls":[{"function":{"name":"look","arguments":{"at":1}}}]},` +
		`{"role":"tool","content":"nothing","tool_name":"look"}],` +
		`"tools":[{"type":"function","function":{"name":"look","description":"looks","parameters":{"type":"object"}}}],` +
		`"options":{"num_predict":7,"temperature":0.5},"stream":false}`
	if string(have) != want {
		t.Errorf("request\n%s\nwant\n%s", have, want)
	}
}
