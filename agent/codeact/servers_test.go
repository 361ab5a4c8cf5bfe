package codeact_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/codeact"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/limit"
	"github.com/evalrun/evalrun/agent/model/meter"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/openai"
	"github.com/evalrun/evalrun/agent/model/price"
	"github.com/evalrun/evalrun/agent/model/retry"
	"github.com/evalrun/evalrun/agent/model/tape"
)

// The agent over the whole stack, against two servers that know nothing of each other, behind a
// proxy with faults: our own always, npm's openai-mock-api with EVALRUN_TEST_OPENAI_MOCK=1
// (scripts/model-faults).
func TestServers(t *testing.T) {
	t.Run("ours", func(t *testing.T) {
		srv := modeltest.NewServer(t, func(c modeltest.Call) modeltest.Reply {
			usage := event.Usage{In: 1000, Out: 10}
			if c.Header.Get("Authorization") != "Bearer "+modeltest.Key {
				return modeltest.Reply{Fault: modeltest.BadKey}
			}
			if c.Body.Messages[len(c.Body.Messages)-1].Role == model.ToolRole {
				return modeltest.Reply{Usage: usage,
					Calls: []event.ReplyCall{{ID: "c2", Name: "finish", Args: `{"message":"42"}`}}}
			}
			return modeltest.Reply{Usage: usage,
				Calls: []event.ReplyCall{{ID: "c1", Name: "execute_bash", Args: `{"command":"cat answer"}`}}}
		})
		servers(t, srv.URL)
	})
	t.Run("openai-mock-api", func(t *testing.T) {
		if os.Getenv("EVALRUN_TEST_OPENAI_MOCK") == "" {
			t.Skip("set EVALRUN_TEST_OPENAI_MOCK=1 to test against npm's openai-mock-api (needs node, npm and the " +
				"npm registry)")
		}
		servers(t, mockAPI(t))
	})
}

const mockConfig = `apiKey: ` + modeltest.Key + `
responses:
  - id: begin
    messages:
      - {role: system, matcher: any}
      - {role: user, content: 'what the answer is', matcher: contains}
      - role: assistant
        tool_calls: [{id: c1, type: function, function: {name: execute_bash, arguments: '{"command":"cat answer"}'}}]
  - id: end
    messages:
      - {role: system, matcher: any}
      - {role: user, content: 'what the answer is', matcher: contains}
      - {role: assistant, content: ''}
      - {role: tool, content: '42', matcher: contains, tool_call_id: c1}
      - role: assistant
        tool_calls: [{id: c2, type: function, function: {name: finish, arguments: '{"message":"42"}'}}]
`

// mockAPI installs and starts the npm server.
func mockAPI(t *testing.T) string {
	dir := t.TempDir()
	install := exec.Command("npm", "install", "--no-audit", "--no-fund", "--prefix", dir, "openai-mock-api@0.4.0")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm install openai-mock-api: %v\n%s", err, out)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(mockConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	srv := exec.Command("node", filepath.Join(dir, "node_modules/openai-mock-api/dist/cli.js"), "-c", config, "-p",
		fmt.Sprint(port))
	srv.Stdout, srv.Stderr = log, log
	if err := srv.Start(); err != nil {
		t.Fatalf("starting openai-mock-api: %v", err)
	}
	t.Cleanup(func() {
		_ = srv.Process.Kill()
		_ = srv.Wait()
	})
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	for range 300 {
		if res, err := http.Get(url + "/health"); err == nil {
			res.Body.Close()
			return url + "/v1"
		}
		time.Sleep(100 * time.Millisecond)
	}
	out, _ := os.ReadFile(log.Name())
	t.Fatalf("openai-mock-api did not come up:\n%s", out)
	return ""
}

func servers(t *testing.T, url string) {
	all := func(f modeltest.Fault) func(int) modeltest.Fault { return func(int) modeltest.Fault { return f } }
	tests := map[string]struct {
		plan  func(n int) modeltest.Fault
		key   string
		class string // of the error; "": the agent gets its answer
		tries int    // of both calls; 0: several
		wait  time.Duration
	}{
		"no fault": {plan: modeltest.Plan(), tries: 2},
		"429 seconds": {plan: modeltest.Plan(modeltest.RateSeconds(time.Second)), tries: 3,
			wait: time.Second},
		// dates have whole seconds
		"429 date": {plan: modeltest.Plan(modeltest.RateDate(2 * time.Second)), tries: 3, wait: time.Second},
		"429 milliseconds": {plan: modeltest.Plan(nil, modeltest.RateMillis(300*time.Millisecond)), tries: 3,
			wait: 300 * time.Millisecond},
		"429 bare":              {plan: modeltest.Plan(modeltest.Rate, modeltest.Rate), tries: 4},
		"500":                   {plan: modeltest.Plan(modeltest.ServerError, nil, modeltest.ServerError), tries: 4},
		"529":                   {plan: modeltest.Plan(modeltest.Overloaded), tries: 3},
		"cut, length known":     {plan: modeltest.Plan(modeltest.Cut(true)), tries: 3},
		"cut, length not known": {plan: modeltest.Plan(nil, modeltest.Cut(false)), tries: 3},
		"dropped":               {plan: modeltest.Plan(modeltest.Drop), tries: 3},
		"invalid JSON":          {plan: modeltest.Plan(modeltest.InvalidJSON), tries: 3},
		"empty choices":         {plan: modeltest.Plan(modeltest.EmptyChoices), tries: 3},
		"slow first byte":       {plan: modeltest.Plan(modeltest.Slow(time.Minute)), tries: 3},
		"one after another": {plan: modeltest.Plan(modeltest.Rate, modeltest.Cut(true), nil, modeltest.HTML,
			modeltest.Drop), tries: 6},
		"429 for ever":  {plan: all(modeltest.Rate), class: model.Rate}, // until the time for it is over
		"500 for ever":  {plan: all(modeltest.ServerError), class: model.Overload, tries: 3},
		"cut for ever":  {plan: all(modeltest.Cut(true)), class: model.Network, tries: 3},
		"slow for ever": {plan: all(modeltest.Slow(time.Minute)), class: model.Network, tries: 3},
		"429 in a day":  {plan: all(modeltest.RateSeconds(24 * time.Hour)), class: model.Rate, tries: 1},
		"quota":         {plan: all(modeltest.Quota), class: model.Quota, tries: 1},
		"too long":      {plan: modeltest.Plan(nil, modeltest.TooLong), class: model.Context, tries: 2},
		"filtered":      {plan: all(modeltest.Filtered), class: model.Refused, tries: 1},
		"wrong key":     {plan: modeltest.Plan(), key: "sk-wrong-0123456789", class: model.Auth, tries: 1},
	}
	path := filepath.Join(t.TempDir(), "tape.jsonl")
	rec, err := tape.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rec.Close() })
	fault := func(name string) func(t *testing.T) {
		tt := tests[name]
		return func(t *testing.T) {
			t.Parallel()
			if tt.key == "" {
				tt.key = modeltest.Key
			}
			timeout := time.Minute
			if strings.HasPrefix(name, "slow") {
				timeout = 2 * time.Second
			}
			web := model.Transport()
			defer web.CloseIdleConnections()
			m, err := openai.New(openai.Config{
				Model: "gpt-4o", BaseURL: modeltest.Proxy(t, url, tt.plan), Key: tt.key, Timeout: timeout, HTTP: web,
			})
			if err != nil {
				t.Fatal(err)
			}
			policy := retry.Policy{Tries: 3, First: time.Millisecond, Max: 10 * time.Millisecond, After: time.Minute}
			if tt.tries == 0 {
				policy.Patience = 3 * time.Second
			}
			stack := rec.Wrap(meter.New(retry.New(limit.New(limit.Config{}).Wrap(m.Client), policy), price.Default()),
				model.Params{})
			tries, ans, err := trial(t, stack, name)
			if n := len(tries); tt.tries == 0 && n < 2 || tt.tries > 0 && n != tt.tries {
				t.Errorf("%d tries, want %d: %+v", len(tries), tt.tries, tries)
			}
			var waited time.Duration
			for _, x := range tries {
				waited += x.Waited
			}
			if waited < tt.wait {
				t.Errorf("waited %v, want %v at least", waited, tt.wait)
			}
			if tt.class != "" {
				var e *model.Error
				if !errors.As(err, &e) || e.Class != tt.class {
					t.Fatalf("%v, want class %s", err, tt.class)
				}
				return
			}
			if err != nil || ans.Text() != "42" {
				t.Fatalf("answer %q, %v", ans.Text(), err)
			}
			metered := 0
			for _, x := range tries {
				if x.Response == nil {
					continue
				}
				metered++
				// A service that tells no output of a reply with a call does not tell what it
				// costs.
				u := x.Response.Usage
				if known := u.Cost != nil && *u.Cost > 0; u.In == 0 || known != (u.Out > 0) {
					t.Errorf("metered %+v", u)
				}
			}
			if metered != 2 {
				t.Errorf("%d replies were metered, want 2", metered)
			}
		}
	}
	t.Run("faults", func(t *testing.T) {
		for name := range tests {
			t.Run(name, fault(name))
		}
	})
	// What was taped plays again without any server, to the last byte of each request.
	t.Run("replayed", func(t *testing.T) {
		tp, err := tape.Open(path, tape.Options{Strict: true})
		if err != nil {
			t.Fatal(err)
		}
		defer tp.Close()
		var wg sync.WaitGroup
		for name, tt := range tests {
			if tt.class != "" {
				continue
			}
			wg.Go(func() {
				tries, ans, err := trial(t, tp.Factory("gpt-4o", model.Params{}), name)
				if err != nil || ans.Text() != "42" || len(tries) != 2 {
					t.Errorf("%s: answer %q, %d tries, %v", name, ans.Text(), len(tries), err)
				}
			})
		}
		wg.Wait()
	})
}

// trial runs the agent once over a stack of clients.
func trial(t *testing.T, f model.Factory, task string) ([]model.Try, agent.Answer, error) {
	var tries []model.Try
	c, err := f(model.Binding{
		Benchmark: "servers", Task: task, Repeat: 1, Attempt: 1, Role: "main",
		Try: func(x model.Try) { tries = append(tries, x) },
	})
	if err != nil {
		t.Error(err)
		return nil, agent.Answer{}, err
	}
	s := agenttest.NewSession(agenttest.Setup{
		Goal: "Find out what the answer is.", Outputs: map[string]string{"cat answer": "42\n"}, Model: c,
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ans, err := codeact.New(codeact.Config{}).Run(ctx, s)
	if open := agenttest.LogOf(s).Open(); len(open) > 0 {
		t.Errorf("%s: actions without an observation: %v", task, open)
	}
	return tries, ans, err
}
