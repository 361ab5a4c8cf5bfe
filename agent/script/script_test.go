package script

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pat, id string
		want    bool
	}{
		{"*", "", true}, {"*", "HumanEval/0", true}, {"HumanEval/*", "HumanEval/12", true},
		{"HumanEval/?", "HumanEval/12", false},
		{"*b*", "abc", true}, {"a*c", "abcbd", false}, {"a*c", "abcbc", true}, {"[x]*", "[x]y", true}, {"", "a", false},
		{"a**", "a", true},
	} {
		if got := match(c.pat, c.id); got != c.want {
			t.Errorf("match(%q, %q) = %t", c.pat, c.id, got)
		}
	}
}

// What is said about each file of testdata/bad stands beside it; -update writes it anew.
func TestBad(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*l")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Parse(filepath.Base(name), data)
		if err == nil {
			t.Errorf("%s was accepted", name)
			continue
		}
		got := err.Error() + "\n"
		if *update {
			if err := os.WriteFile(name+".want", []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(name + ".want")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

var update = flag.Bool("update", false, "write the files of what is wanted anew")

const story = `
- task: "greet-*"
  stage: 2
  do: [{finish: {message: "second", outputs: {n: 2}}}]
- task: "greet-*"
  do:
    - run: echo hi
    - run: {args: [ls, -l], dir: /tmp, timeout: 5s}
    - do:
        - think: again
        - tool: {name: look, args: {at: "<&>"}}
      times: 2
    - ask: six times seven?
    - sleep: 1ms
    - finish: "42"
    - run: never played
- task: quits
  do: [{finish: {message: no way, gave_up: true}}, {fail: x}]
- task: fails
  do: [{run: x}, {fail: out of ideas}]
- task: edits
  do: [{action: {kind: edit, body: {path: a}}}]
`

func session(s agenttest.Setup) (*agent.Session, func() []string) {
	s.Outputs = map[string]string{"echo hi": "hi\n", "x": ""}
	ses := agenttest.NewSession(s)
	return ses, func() (out []string) {
		for e, err := range ses.Log.Events(0) {
			if err != nil {
				out = append(out, err.Error())
				continue
			}
			b, _ := json.Marshal(e.Body)
			if e.Body.Class() != event.Observation {
				out = append(out, fmt.Sprintf("%s %v %s", e.Body.Kind(), e.Timeout, b))
			}
		}
		return out
	}
}

type echoModel struct{}

func (echoModel) Info() model.Info { return model.Info{} }
func (echoModel) Generate(_ context.Context, r *model.Request) (*model.Response, error) {
	return &model.Response{Model: "echo", Parts: r.Messages[0].Parts}, nil
}

func TestPlay(t *testing.T) {
	sc, err := Parse("story.yaml", []byte(story))
	if err != nil {
		t.Fatal(err)
	}
	ses, log := session(agenttest.Setup{Kinds: []string{"run"}, Model: echoModel{}})
	a := sc.For("greet-you")
	ans, err := a.Run(t.Context(), ses)
	if err != nil || ans.Text() != "42" {
		t.Errorf("first stage: %+v, %v", ans, err)
	}
	got := log()
	for i := range got { // IDs of replies are the log's business
		if strings.HasPrefix(got[i], "reply") {
			got[i] = "reply"
		}
	}
	want := []string{
		`run 0s {"command":"echo hi"}`,
		`run 5s {"args":["ls","-l"],"dir":"/tmp"}`,
		`think 0s {"thought":"again"}`, `tool 0s {"name":"look","args":{"at":"\u003c\u0026\u003e"}}`,
		`think 0s {"thought":"again"}`, `tool 0s {"name":"look","args":{"at":"\u003c\u0026\u003e"}}`,
		`reply`,
		`finish 0s {"message":"42"}`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	ans, err = a.Run(t.Context(), ses)
	if err != nil || ans.Text() != "second" || string(ans.Outputs) != `{"n":2}` {
		t.Errorf("second stage: %+v, %v", ans, err)
	}
}

func TestEnds(t *testing.T) {
	sc, err := Parse("story.yaml", []byte(story))
	if err != nil {
		t.Fatal(err)
	}
	run := func(task string, ctx context.Context, setup agenttest.Setup) (agent.Answer, error) {
		ses, _ := session(setup)
		return sc.For(task).Run(ctx, ses)
	}
	if ans, err := run("quits", t.Context(), agenttest.Setup{}); err != nil || ans.GaveUp != "no way" {
		t.Errorf("quits: %+v, %v", ans, err)
	}
	if _, err := run("fails", t.Context(), agenttest.Setup{}); !errors.As(err, new(*Fail)) {
		t.Errorf("fails: %v", err)
	}
	if ans, err := run("another", t.Context(), agenttest.Setup{}); err != nil || ans.GaveUp == "" {
		t.Errorf("no rule: %+v, %v", ans, err)
	}
	if _, err := run("greet-1", t.Context(), agenttest.Setup{MaxSteps: 3}); !errors.As(err, new(*agent.LimitError)) {
		t.Errorf("limit: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrUnexpectedEOF)
	if _, err := run("greet-1", ctx, agenttest.Setup{}); err != io.ErrUnexpectedEOF {
		t.Errorf("stopped: %v", err)
	}
	done := agenttest.Setup{Step: func(context.Context, event.Event) (event.Body, error) {
		return event.RunResult{}, agent.ErrDone
	}}
	if ans, err := run("greet-1", t.Context(), done); err != nil || ans.Text() != "" {
		t.Errorf("done: %+v, %v", ans, err)
	}
}

// JSONL and YAML say the same.
func TestForms(t *testing.T) {
	a, err := Parse("a.jsonl", []byte("\n"+`{"task":"x","do":[{"run":"a"},{"sleep":"2s","times":3}]}`+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse("b.yaml", []byte("- {task: x, do: [{run: a}, {sleep: 2s, times: 3}]}"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(a.rules[0].steps, b.rules[0].steps, cmp.AllowUnexported(step{})); d != "" {
		t.Error(d)
	}
}

func BenchmarkStep(b *testing.B) {
	sc, err := Parse("x.yaml", []byte("- do: [{run: x, times: 20}]"))
	if err != nil {
		b.Fatal(err)
	}
	ses := &agent.Session{Env: nowhere{}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sc.For("x").Run(b.Context(), ses); err != nil {
			b.Fatal(err)
		}
	}
}

type nowhere struct{ agent.Env }

func (nowhere) Step(_ context.Context, e event.Event) (event.Event, error) { return e, nil }

// What is nested beyond reason is refused before the library's time and memory grow with the square
// of it.
func TestDeep(t *testing.T) {
	for _, text := range []string{"\n- " + strings.Repeat("[", 1<<18), "\n" + strings.Repeat("- ", 1<<18),
		"\n- " + strings.Repeat("{a: ", 1<<16)} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), "x.yaml:2:") ||
			!strings.HasSuffix(err.Error(), ": nested deeper than 64") {
			t.Errorf("%.10q: %v", text, err)
		}
	}
	if _, err := Parse("x.yaml", []byte(strings.Repeat("- do: [{finish: x}]\n", 1000))); err != nil {
		t.Error(err)
	}
}

func TestBrowse(t *testing.T) {
	s, err := Parse("a.yaml", []byte("- do:\n  - browse: ''\n  - browse: click(\"12\")\n  - browse: {code: noop(), "+
		"timeout: 5s}\n  - browse: {url: 'http://x/'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ses := agenttest.NewSession(agenttest.Setup{Kinds: []string{"browse", "browse_interactive"},
		Step: func(_ context.Context, e event.Event) (event.Body, error) {
			got = append(got, fmt.Sprintf("%+v %v", e.Body, e.Timeout))
			return event.Browsed{}, nil
		}})
	if _, err := s.For("x").Run(t.Context(), ses); err != nil {
		t.Fatal(err)
	}
	if want := `[{Code:} 0s {Code:click("12")} 0s {Code:noop()} 5s {URL:http://x/} 0s]`; fmt.Sprint(got) != want {
		t.Errorf("got %v", got)
	}
	if _, err := Parse("a.yaml", []byte("- do:\n  - browse: {code: noop(), url: 'http://x/'}\n")); err == nil {
		t.Error("code and url at once: no error")
	}
}
