package webarena

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// What the oracle knows scores 1.
func TestSolve(t *testing.T) {
	w := newWorld(t)
	found := strings.Replace(guard, `"url_match","program_html"`, `"url_match","string_match"`, 1)
	found = strings.Replace(found, `"reference_url"`,
		`"reference_answers":{"must_include":["jaw","guard"]},"reference_url"`, 1)
	b := bench(t, WebArena, w.sites, nil, best, found, never, ordered)
	for _, id := range []string{"0", "1", "8", "2"} {
		g := begin(t, b, id, map[string]func(*model.Request) (string, error){
			roleGrader: func(*model.Request) (string, error) { return "different", nil }})
		solver, err := b.Solve(g.task)
		if id == "2" {
			if err == nil || !strings.Contains(err.Error(), "program_html") {
				t.Errorf("a task whose solution is not known: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		s := agenttest.NewSession(agenttest.Setup{Kinds: []string{event.Browse{}.Kind()},
			Step: func(ctx context.Context, e event.Event) (event.Body, error) {
				turn, err := g.ep.Step(ctx, e)
				if turn.Done && err == nil {
					err = agent.ErrDone
				}
				return turn.Obs, err
			}})
		_, _ = solver.Run(t.Context(), s) // it ends with the episode
		if got, r, err := g.end(""); err != nil || got != 1 {
			t.Errorf("task %s: the oracle scores %v, %v, %v", id, got, r, err)
		}
	}
}

// Every published task says what it needs, and the oracle what it knows.
func TestPublishedNeeds(t *testing.T) {
	data := os.Getenv("EVALRUN_TEST_DATA")
	if data == "" {
		t.Skip("published tasks are not there; name their folder by EVALRUN_TEST_DATA")
	}
	began := time.Now()
	b, err := New(WebArena, filepath.Join(data, "webarena", "test.raw.json"), nil, web.Browsers{},
		func(name string) string { return "http://" + strings.ToLower(name) + ":80" })
	if err != nil {
		t.Fatal(err)
	}
	n, graded, solved, alone := 0, 0, 0, 0
	counts := map[string]int{}
	for x, err := range b.Source().Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		needs, err := b.Needs(x, benchmarks.Options{})
		if err != nil || needs.Skip != "" || !needs.Browser {
			t.Errorf("task %s: %+v, %v", x.ID, needs, err)
		}
		n++
		counts[x.Fields["sites"]+": "+x.Fields["eval_types"]]++
		graded += len(needs.Roles)
		if len(needs.Exclusive) == 0 {
			alone++
		}
		if _, err := b.Solve(x); err == nil {
			solved++
		}
	}
	if n != 812 || graded != 118 || solved != 325+66+10 || alone != 0 || counts["shopping: program_html"] != 47 ||
		counts["gitlab: string_match url_match"]+counts["gitlab: url_match string_match"] != 10 {
		t.Errorf("%d tasks, %d graded by a model, %d solved, %d that share nothing; %v", n, graded, solved, alone,
			counts)
	}
	tiny, err := New(WebArena, filepath.Join(data, "webarena", "test.raw.json"), []byte(`{"subset":"tiny"}`),
		web.Browsers{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	few := 0
	for x, err := range tiny.Source().Tasks(t.Context()) {
		if few++; err != nil || !slices.Contains([]string{"410", "533", "537", "552", "561", "562"}, x.ID) {
			t.Errorf("of the tiny subset: %s, %v", x.ID, err)
		}
	}
	if few != 6 {
		t.Errorf("the tiny subset has %d tasks", few)
	}
	t.Logf("%d tasks in %v, needs and solutions included", n, time.Since(began).Round(time.Millisecond))
}
