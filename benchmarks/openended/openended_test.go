package openended

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestWish(t *testing.T) {
	for address, want := range map[string]string{
		"example.com":                 `{"Mode":"allow","Allow":["example.com","*.example.com"]} []`,
		"https://www.example.com/a?b": `{"Mode":"allow","Allow":["www.example.com","*.example.com"]} []`,
		"http://localhost:3000":       `{"Mode":"","Allow":null} [localhost:3000]`,
		"http://[::1]/":               `{"Mode":"","Allow":null} [[::1]:80]`,
		"http://10.0.0.7/":            `{"Mode":"","Allow":null} [10.0.0.7:80]`,
	} {
		b, err := New(address, nil, web.Browsers{})
		if err != nil {
			t.Fatal(err)
		}
		w := b.pageNetwork(benchmarks.Options{})
		raw, _ := json.Marshal(w.Network)
		if got := string(raw) + " [" + strings.Join(w.Hosts, " ") + "]"; got != want {
			t.Errorf("%s: %s, not %s", address, got, want)
		}
	}
	b, _ := New("example.com", nil, web.Browsers{})
	if w := b.pageNetwork(benchmarks.Options{Sandbox: sandbox.Spec{
		Network: sandbox.Network{Mode: "public"}}}); w.Network.Mode != "public" {
		t.Errorf("the run's own policy: %+v", w)
	}
	for _, bad := range []string{"file:///etc/passwd", "http://", "chrome://version", "http://a b/"} {
		if _, err := New(bad, nil, web.Browsers{}); err == nil {
			t.Errorf("%s is no page on the web", bad)
		}
	}
}

func TestPlay(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("no browser for tests (EVALRUN_TEST_BROWSER=1)")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(`<title>Hall</title><h1>Hall</h1><a href="/next">next</a><script>console.log("here I am")</script>`))
	}))
	defer s.Close()
	p := browsers.New(browsers.Options{})
	defer p.Close()
	b, err := New(s.URL, json.RawMessage(`{"goal": "Say where the link leads.", "max_steps": 5}`),
		web.Browsers{Pool: p})
	if err != nil {
		t.Fatal(err)
	}
	task, err := b.Source().Task(t.Context(), strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	played, err := benchtest.Play(t.Context(),
		benchtest.Session{Benchmark: b, Task: task,
			Agent: agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				for _, code := range []string{"", "goto('http://127.0.0.1:8889/')", "go_back()", ""} {
					e, err := s.Step(ctx, event.New(event.FromAgent, event.Browse{Code: code}))
					if err != nil {
						return agent.Answer{}, err
					}
					o, ok := e.Body.(event.Browsed)
					if !ok || o.AX == nil || o.DOM == nil || o.Properties == nil || o.Screenshot == nil {
						t.Errorf("%q: %+v", code, e.Body)
					}
				}
				return agent.Answer{Parts: event.Text("to /next")}, nil
			})})
	if err != nil {
		t.Fatal(err)
	}
	var end web.End
	if err := json.Unmarshal(played.Evidence[0].Data, &end); err != nil {
		t.Fatal(err)
	}
	if end.Steps != 3 || !end.Sent || len(end.Answers) != 1 || end.Answers[0] != "to /next" || len(end.Refused) == 0 {
		t.Errorf("%+v", end)
	}
	if r := played.Results[0].Primary(); *r.Value != 0 || r.Why == "" {
		t.Errorf("%+v", r)
	}
}
