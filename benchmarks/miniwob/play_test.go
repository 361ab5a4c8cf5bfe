package miniwob_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/miniwob"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym/browsers"
)

// pages is where the pages are; without them the test is skipped.
func pages(t testing.TB) string {
	dir := os.Getenv("EVALRUN_TEST_MINIWOB")
	if dir == "" {
		t.Skip("the pages of MiniWoB++ are not there (EVALRUN_TEST_MINIWOB)")
	}
	return dir
}

// open makes the benchmark with browsers of its own.
func open(t testing.TB, options string) *miniwob.Benchmark {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("no browser for tests (EVALRUN_TEST_BROWSER=1)")
	}
	p := browsers.New(browsers.Options{Contexts: 4})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := miniwob.New(pages(t), json.RawMessage(options), web.Browsers{Pool: p})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// play plays one repeat of a task.
func play(t testing.TB, b *miniwob.Benchmark, task string, repeat int, a agent.Agent) *benchtest.Played {
	t.Helper()
	ctx := context.Background()
	x, err := b.Source().Task(ctx, task)
	if err != nil {
		t.Fatal(err)
	}
	p, err := benchtest.Play(ctx, benchtest.Session{Benchmark: b, Task: x, Agent: a,
		Options: benchmarks.Options{Repeat: repeat}})
	if err != nil {
		t.Fatalf("%s, repeat %d: %v", task, repeat, err)
	}
	return p
}
