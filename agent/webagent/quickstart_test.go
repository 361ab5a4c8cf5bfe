package webagent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/webagent"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/quickstart"
	"github.com/evalrun/evalrun/benchmarks/tasks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym/browsers"
)

var stepsSoFar = regexp.MustCompile(`(?m)^## step (\d+)$`)

// guided is a model that knows a task's solution, but takes goal, page and what was done from what
// it is shown.
func guided(t *testing.T, o tasks.Oracle) modeltest.Func {
	var g *tasks.Guide
	return func(_ context.Context, _ model.Binding, _ int, req *model.Request) (*model.Response, error) {
		said := event.PlainText(req.Messages[1].Parts)
		between := func(from, to string) string {
			_, s, _ := strings.Cut(said, from)
			s, _, _ = strings.Cut(s, to)
			return s
		}
		if g == nil {
			g = o.Guide(between("## Goal:\n", "\n\n# Observation"))
		}
		if err := g.See(between("## AXTree:\n", "\n\n## Focused element:")); err != nil {
			t.Error(err)
		}
		n := 0
		if all := stepsSoFar.FindAllStringSubmatch(said, -1); len(all) > 0 {
			n, _ = strconv.Atoi(all[len(all)-1][1])
			n++
		}
		code := "noop()"
		if n < len(o.Actions) {
			var err error
			if code, err = g.Fill(o.Actions[n]); err != nil {
				t.Errorf("step %d: %v\n%s", n, err, said)
			}
		}
		r := modeltest.Text("<think>Step " + fmt.Sprint(n) + ".</think><action>" + code + "</action>")
		return &r, nil
	}
}

// The tasks in a browser that come with evalrun can be done by what the agent shows of them.
func TestQuickstart(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") == "" {
		t.Skip("needs a browser (EVALRUN_TEST_BROWSER=1)")
	}
	p := browsers.New(browsers.Options{})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	bench := quickstart.New().In(web.Browsers{Pool: p})
	a, err := webagent.New(webagent.Config{Visible: ptr(false), Clickable: ptr(false)})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for x, err := range bench.Source().Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(x.Tags, "browser") {
			continue
		}
		n++
		var task tasks.Task
		if err := json.Unmarshal(x.Data, &task); err != nil {
			t.Fatal(err)
		}
		played, err := benchtest.Play(t.Context(),
			benchtest.Session{Benchmark: bench, Task: x, Agent: with(guided(t, *task.Oracle), a)})
		if err != nil {
			t.Errorf("%s: %v", x.ID, err)
			continue
		}
		if v, err := played.Score(bench); err != nil || v != 1 {
			t.Errorf("%s: %v, %v", x.ID, v, err)
		}
	}
	if n < 8 {
		t.Errorf("%d tasks in a browser", n)
	}
}
