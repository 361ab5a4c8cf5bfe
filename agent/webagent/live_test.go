package webagent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/codeact"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/webagent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/miniwob"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym/browsers"
)

// reader is a model that knows the page only from what it is shown: it takes the bids out of the
// tree.
func reader(req *model.Request) string {
	all := ""
	for _, m := range req.Messages {
		if m.Role == model.User || m.Role == model.ToolRole {
			all += event.PlainText(m.Parts) + "\n"
		}
	}
	find := func(pattern string) []string { return regexp.MustCompile(pattern).FindStringSubmatch(all) }
	last := func(role, name string) string { // of the newest observation
		hits := regexp.MustCompile(`\[(\w+)\] `+role+` `+regexp.QuoteMeta(name)).FindAllStringSubmatch(all, -1)
		if len(hits) == 0 {
			return "0"
		}
		return hits[len(hits)-1][1]
	}
	switch {
	case find(`Enter "(\w+)" into the text field`) != nil:
		text := find(`Enter "(\w+)" into the text field`)[1]
		if strings.Count(all, text) > 1 { // in the tree or the history as well: it is filled in
			return fmt.Sprintf("click('%s')", last("button", "'Submit'"))
		}
		return fmt.Sprintf("fill('%s', '%s')", last("textbox", "''"), text)
	case find(`Click on the "(.+?)" button`) != nil:
		return fmt.Sprintf("click('%s')", last("button", "'"+find(`Click on the "(.+?)" button`)[1]+"'"))
	case find(`Click button (\w+)`) != nil:
		return fmt.Sprintf("click('%s')", last("button", "'"+find(`Click button (\w+)`)[1]+"'"))
	case find(`Close the dialog`) != nil:
		return fmt.Sprintf("click('%s')", last("button", "'Close'"))
	case find(`Focus into the textbox`) != nil:
		return fmt.Sprintf("click('%s')", last("textbox", "''"))
	}
	return "noop()"
}

// with gives an agent a model.
func with(f modeltest.Func, a agent.Agent) agent.Agent {
	return agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		c, n := *s, 0
		c.Models = func(string, string) (model.Client, error) {
			return modeltest.Func(func(ctx context.Context, b model.Binding, i int,
				req *model.Request) (*model.Response, error) {
				r, err := f(ctx, b, i, req)
				n++
				if err == nil {
					r.ID = fmt.Sprint("r", n)
				}
				return r, err
			}).Client(), nil
		}
		return a.Run(ctx, &c)
	})
}

// Tasks of MiniWoB++ in a real browser, by both agents, with a model that has only what they tell
// it.
func TestLive(t *testing.T) {
	dir := os.Getenv("EVALRUN_TEST_MINIWOB")
	if dir == "" || os.Getenv("EVALRUN_TEST_BROWSER") == "" {
		t.Skip("needs a browser (EVALRUN_TEST_BROWSER=1) and the pages of MiniWoB++ (EVALRUN_TEST_MINIWOB)")
	}
	p := browsers.New(browsers.Options{Contexts: 2})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	bench, err := miniwob.New(dir, json.RawMessage(`{}`), web.Browsers{Pool: p})
	if err != nil {
		t.Fatal(err)
	}
	tagged := modeltest.Func(func(_ context.Context, _ model.Binding, _ int,
		req *model.Request) (*model.Response, error) {
		r := modeltest.Text("<think>I read the page.</think>\n<action>\n" + reader(req) + "\n</action>")
		return &r, nil
	})
	calling := modeltest.Func(func(_ context.Context, _ model.Binding, _ int,
		req *model.Request) (*model.Response, error) {
		args, _ := json.Marshal(map[string]string{"code": reader(req)})
		r := modeltest.Calls("browser", string(args))
		return &r, nil
	})
	browsing, err := webagent.New(webagent.Config{})
	if err != nil {
		t.Fatal(err)
	}
	seeing, err := webagent.New(webagent.Config{Screenshot: "marks", Coords: "center", Plan: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, arm := range []struct {
		name  string
		agent agent.Agent
		model modeltest.Func
	}{{"browse", browsing, tagged}, {"browse with marks", seeing, tagged},
		{"codeact", codeact.New(codeact.Config{Picture: "marks"}), calling}} {
		for _, task := range []string{"click-test-2", "click-button", "enter-text", "focus-text", "click-dialog"} {
			x, err := bench.Source().Task(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			played, err := benchtest.Play(t.Context(),
				benchtest.Session{Benchmark: bench, Task: x, Agent: with(arm.model, arm.agent),
					Options: benchmarks.Options{Repeat: 1}})
			if err != nil {
				t.Fatalf("%s, %s: %v", arm.name, task, err)
			}
			if v, err := played.Score(bench); err != nil || v != 1 {
				t.Errorf("%s, %s: %v, %v", arm.name, task, v, err)
				for _, e := range played.Log.All() {
					t.Logf("%.2000s", fmt.Sprintf("%+v", e.Body))
				}
			}
		}
	}
}
