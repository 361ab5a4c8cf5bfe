package webarena

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// shared are the browsers for all tests of this package: starting one takes longer than most of
// them.
var shared struct {
	sync.Once
	*browsers.Pool
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.Pool != nil {
		if err := shared.Pool.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func lent(t *testing.T) web.Browsers {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("needs chromium-headless-shell; set EVALRUN_TEST_BROWSER=1 where it is")
	}
	shared.Do(func() { shared.Pool = browsers.New(browsers.Options{}) })
	return web.Browsers{Pool: shared.Pool}
}

// bench is a benchmark of configurations, which are JSON objects, on a world's sites.
func bench(t *testing.T, d Dialect, sites Sites, options map[string]any, configs ...string) *Benchmark {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tasks.json")
	if err := os.WriteFile(file, []byte("["+strings.Join(configs, ",")+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if options == nil {
		options = map[string]any{}
	}
	if sites != nil {
		options["sites"] = sites
	}
	raw, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(d, file, raw, lent(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A stand is a Host with models that say what they are told to.
type stand struct {
	log    *agenttest.Log
	models map[string]func(*model.Request) (string, error)
	asked  int
}

func (s *stand) Sandbox(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, errors.New("no machine is needed")
}
func (s *stand) Secret(name string) (string, error) { return "secret of " + name, nil }
func (s *stand) Log() event.Log                     { return s.log }
func (s *stand) Seed() uint64                       { return 1 }

type says struct {
	s *stand
	f func(*model.Request) (string, error)
}

func (s *stand) Model(role string) (model.Client, error) {
	f := s.models[role]
	if f == nil {
		return nil, errors.New("no model for the role " + role)
	}
	return says{s, f}, nil
}

func (c says) Info() model.Info { return model.Info{} }

func (c says) Generate(_ context.Context, r *model.Request) (*model.Response, error) {
	c.s.asked++
	text, err := c.f(r)
	if err != nil {
		return nil, err
	}
	return &model.Response{Parts: event.Text(text)}, nil
}

// A game is a session that a test plays step by step.
type game struct {
	t    *testing.T
	b    *Benchmark
	task datasets.Task
	host *stand
	ep   benchmarks.Episode
	goal agent.Goal
	last benchmarks.Turn
	seen event.Browsed
}

func newGame(t *testing.T, b *Benchmark, id string,
	models map[string]func(*model.Request) (string, error)) (*game, error) {
	t.Helper()
	task, err := b.Source().Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	g := &game{t: t, b: b, task: task, host: &stand{log: &agenttest.Log{}, models: models}}
	if g.ep, err = b.Open(t.Context(), g.host, task, benchmarks.Options{}); err != nil {
		return g, err
	}
	t.Cleanup(func() { g.ep.Close() })
	stage, err := g.ep.Next(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	g.goal = stage.Goal
	return g, nil
}

func begin(t *testing.T, b *Benchmark, id string, models map[string]func(*model.Request) (string, error)) *game {
	t.Helper()
	g, err := newGame(t, b, id, models)
	if err != nil {
		t.Fatalf("task %s: %v", id, err)
	}
	return g
}

// do makes steps; the last one's turn stays.
func (g *game) do(codes ...string) error {
	g.t.Helper()
	for _, code := range codes {
		var err error
		if g.last, err = g.ep.Step(g.t.Context(), event.New(event.FromAgent, event.Browse{Code: code})); err != nil {
			return err
		}
		g.seen, _ = g.last.Obs.(event.Browsed)
		if g.seen.Error != "" {
			g.t.Logf("%s: %s", code, g.seen.Error)
		}
	}
	return nil
}

// must is do without an error.
func (g *game) must(codes ...string) *game {
	g.t.Helper()
	if err := g.do(codes...); err != nil {
		g.t.Fatal(err)
	}
	return g
}

// bid is the mark of the element whose opening tag holds a text, in the page as it was seen last.
func (g *game) bid(part string) string {
	g.t.Helper()
	g.must("")
	r, err := g.host.log.OpenBlob(g.t.Context(), *g.seen.AX)
	if err != nil {
		g.t.Fatal(err)
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		g.t.Fatal(err)
	}
	for node := range bytes.SplitSeq(raw, []byte(`"nodeId"`)) {
		if _, rest, ok := bytes.Cut(node, []byte(`"browsergym_id":"`)); ok &&
			bytes.Contains(node, []byte(`"`+part+`"`)) {
			id, _, _ := bytes.Cut(rest, []byte(`"`))
			return string(id)
		}
	}
	g.t.Fatalf("the page has nothing called %s: %.2000s", part, raw)
	return ""
}

// end collects and grades, with an answer or without.
func (g *game) end(answer string) (float64, benchmarks.Result, error) {
	g.t.Helper()
	var ans agent.Answer
	if answer != "" {
		ans.Parts = event.Text(answer)
	}
	ev, err := g.ep.Collect(g.t.Context(), ans)
	if err != nil {
		return 0, benchmarks.Result{}, err
	}
	if err := g.ep.Close(); err != nil {
		g.t.Error(err)
	}
	r, err := g.b.Grade(g.t.Context(), g.host, g.task, ev, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	return *r.Primary().Value, r, nil
}
