package assistantbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

type stand struct{ log agenttest.Log }

func (*stand) Sandbox(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, errors.New("no machine is needed")
}
func (*stand) Model(string) (model.Client, error) { return nil, errors.New("no model is needed") }
func (*stand) Secret(string) (string, error)      { return "", nil }
func (s *stand) Log() event.Log                   { return &s.log }
func (*stand) Seed() uint64                       { return 1 }

func bench(t *testing.T, br web.Browsers, options map[string]any) *Benchmark {
	t.Helper()
	file := filepath.Join(t.TempDir(), "q.jsonl")
	if err := os.WriteFile(file, []byte(`{"id":"a","task":"How many?","answer":"20","difficulty":"Hard"}
{"id":"b","task":"Which?","answer":null}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(file, raw, br)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOutOfReach(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	for _, away := range []bool{false, true} {
		if away {
			s.Close()
		}
		b := bench(t, web.Browsers{}, map[string]any{"start": s.URL})
		if _, err := b.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		task, err := b.Source().Task(t.Context(), "validation.0")
		if err != nil {
			t.Fatal(err)
		}
		n, err := b.Needs(task, benchmarks.Options{})
		if err != nil || !n.Browser || (n.Skip != "") != away || away &&
			!strings.Contains(n.Skip, s.URL+", is out of reach") {
			t.Errorf("away %v: %+v, %v", away, n, err)
		}
	}
	if _, err := New("x.jsonl", []byte(`{"split":"dev"}`), web.Browsers{}); err == nil ||
		!strings.Contains(err.Error(), `"dev" is none of`) {
		t.Errorf("an unknown split: %v", err)
	}
	if _, err := New("x.jsonl", []byte(`{"allow":["https://x/y"]}`), web.Browsers{}); err == nil ||
		!strings.Contains(err.Error(), "allow: ") {
		t.Errorf("an address for a host: %v", err)
	}
}

// A right answer scores 1, a near one less, wherever it is given; one whose right answer is secret
// has no score.
func TestSessions(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("needs chromium-headless-shell; set EVALRUN_TEST_BROWSER=1 where it is")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "<title>Search</title><script>document.title += ' ' + navigator.language + ' ' + "+
			"Intl.DateTimeFormat().resolvedOptions().timeZone</script>")
	}))
	defer s.Close()
	p := browsers.New(browsers.Options{})
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, tt := range []struct {
		id, code, answer string
		want             float64
		done             bool
	}{
		{"0", "send_msg_to_user('20')", "", 1, true},
		{"0", "noop()", "20", 1, false},
		{"0", "noop()", `{"answer": 1}`, 0, false},
		{"0", "send_msg_to_user('10')", "", 0.307, true},
		{"0", "noop()", "", 0, false},
		{"0", "report_infeasible('no')", "", 0, false}, // no action of this benchmark
		{"1", "send_msg_to_user('blue')", "", -1, true},
	} {
		b := bench(t, web.Browsers{Pool: p}, map[string]any{"start": s.URL, "allow": []string{"127.0.0.1"}})
		task, err := b.Source().Task(t.Context(), "validation."+tt.id)
		if err != nil {
			t.Fatal(err)
		}
		ep, err := b.Open(t.Context(), &stand{}, task, benchmarks.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer ep.Close()
		turn, err := ep.Step(t.Context(), event.New(event.FromAgent, event.Browse{Code: tt.code}))
		if err != nil {
			t.Fatal(err)
		}
		if o := turn.Obs.(event.Browsed); turn.Done != tt.done || len(o.Pages) != 1 ||
			o.Pages[0].Title != "Search en-US America/New_York" {
			t.Errorf("%s: done %v, pages %v, %s", tt.code, turn.Done, o.Pages, o.Error)
		}
		var ans agent.Answer
		if tt.answer != "" {
			ans.Parts = event.Text(tt.answer)
		}
		ev, err := ep.Collect(t.Context(), ans)
		if err != nil {
			t.Fatal(err)
		}
		r, err := b.Grade(t.Context(), nil, task, ev, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := -1.0
		if v := r.Primary().Value; v != nil {
			got = *v
		}
		if got-tt.want > 0.001 || tt.want-got > 0.001 {
			t.Errorf("%s, %q: score %v, want %v", tt.code, tt.answer, got, tt.want)
		}
		if got < 0 && r.Primary().Text != "blue" {
			t.Errorf("the answer is not kept: %+v", r)
		}
	}
}

// The run's sandbox.network holds for its pages; the option allow only narrows it.
func TestNetwork(t *testing.T) {
	list := func(hosts ...string) sandbox.Network { return sandbox.Network{Mode: "allow", Allow: hosts} }
	for name, tt := range map[string]struct {
		run   sandbox.Network
		allow []string
		want  sandbox.Network
		skip  string
	}{
		"nothing said": {want: sandbox.Network{Mode: "public"}},
		"run public":   {run: sandbox.Network{Mode: "public"}, want: sandbox.Network{Mode: "public"}},
		"run none":     {run: sandbox.Network{Mode: "none"}, skip: "sandbox.network is none"},
		"none, allow": {run: sandbox.Network{Mode: "none"}, allow: []string{"a.example"},
			skip: "sandbox.network is none"},
		"run lists":   {run: list("b.example"), want: list("b.example")},
		"run no host": {run: list(), skip: "sandbox.network is none"},
		"allow":       {allow: []string{"a.example"}, want: list("a.example")},
		"narrowed":    {run: sandbox.Network{Mode: "public"}, allow: []string{"a.example"}, want: list("a.example")},
		"both list":   {run: list("b.example"), allow: []string{"a.example"}, skip: "both name hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			options := map[string]any{}
			if tt.allow != nil {
				options["allow"] = tt.allow
			}
			b := bench(t, web.Browsers{}, options)
			o := benchmarks.Options{Sandbox: sandbox.Spec{Network: tt.run}}
			n, err := b.Needs(datasets.Task{}, o)
			if err != nil || (n.Skip == "") != (tt.skip == "") || !strings.Contains(n.Skip, tt.skip) {
				t.Errorf("skip %q, %v; want %q", n.Skip, err, tt.skip)
			}
			if got, _ := b.network(o); tt.skip == "" &&
				(got.Mode != tt.want.Mode || !slices.Equal(got.Allow, tt.want.Allow)) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}
