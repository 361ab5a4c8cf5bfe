package humaneval

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// data is a file of the shared test data; the test is skipped where it is not there.
func data(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("EVALRUN_TEST_DATA")
	if dir == "" {
		t.Skip("set EVALRUN_TEST_DATA to a folder that holds " + name)
	}
	return filepath.Join(dir, name)
}

func TestPublished(t *testing.T) {
	b, err := New(data(t, "HumanEval.jsonl.gz"), nil)
	if err != nil {
		t.Fatal(err)
	}
	benchtest.Run(t, benchtest.Suite{Benchmark: b, Driver: benchtest.Local(t), Want: 164})
}

const small = `{"task_id":"T/0","prompt":"def inc(x):\n    \"\"\" one more \"\"\"\n","entry_point":"inc","canonical_solution":"    return x + 1\n","test":"def check(candidate):\n    assert candidate(1) == 2\n"}
`

func file(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "he.jsonl")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSmall(t *testing.T) {
	b, err := New(file(t, small), nil)
	if err != nil {
		t.Fatal(err)
	}
	benchtest.Run(t, benchtest.Suite{Benchmark: b, Driver: benchtest.Local(t), Want: 1})
}

// The file counts before the answer; without a machine only the answer is there, and nothing at all
// starts no machine.
func TestWhatCounts(t *testing.T) {
	d := benchtest.Local(t)
	b, err := New(file(t, small), []byte(`{"timeout": 3}`))
	if err != nil {
		t.Fatal(err)
	}
	task, err := b.Source().Task(t.Context(), "T/0")
	if err != nil {
		t.Fatal(err)
	}
	const good = "```python\ndef inc(x):\n    return 1 + x\n```"
	for name, c := range map[string]struct {
		script, answer string
		want           float64
		flags          string
		machines       int
	}{
		"answer":        {"", good, 1, "[]", 1},
		"body":          {"", "return x+1", 1, "[]", 1},
		"nothing":       {"", "", 0, "[]", 0},
		"file":          {"printf 'def inc(x): return x + 1' > solution.py", "it is in solution.py", 1, "[]", 2},
		"wrong file":    {"printf 'def inc(x): return x' > solution.py", good, 0, "[]", 2},
		"acts, answers": {"ls", good, 1, "[]", 2},
		"a folder":      {"mkdir solution.py", good, 1, "[]", 2},
		"a huge file":   {"truncate -s 1G solution.py", good, 1, "[]", 2},
		// its bytes become U+FFFD
		"not UTF-8":     {"printf 'def inc(x): return x + 1 # \\xff' > solution.py", "", 1, "[]", 2},
		"for ever":      {"", "while True: pass", 0, "[no_reward]", 1},
		"leaves with 0": {"", "import sys\nsys.exit(0)\ndef inc(x): pass", 0, "[]", 1},
		"another service": {"(setsid sleep 1000 &); echo 'import os; os._exit(0)' > sitecustomize.py", good, 1, "[]",
			2},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := benchtest.Play(t.Context(),
				benchtest.Session{Benchmark: b, Driver: d, Task: task,
					Agent: agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
						if c.script != "" {
							if _, err := s.Step(ctx,
								event.New(event.FromAgent, event.Run{Command: c.script})); err != nil {
								return agent.Answer{}, err
							}
						}
						return agent.Answer{Parts: event.Text(c.answer)}, nil
					})})
			if err != nil {
				t.Fatal(err)
			}
			r := p.Results[0]
			if got := *r.Primary().Value; got != c.want || fmt.Sprint(r.Flags) != c.flags || p.Machines != c.machines ||
				len(p.Strays) > 0 {
				t.Errorf("%v (%s), flags %v, %d machines, %q; want %v, %s, %d", got, r.Primary().Why, r.Flags,
					p.Machines, p.Strays, c.want, c.flags, c.machines)
			}
		})
	}
}

func TestBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		`{"prompt":"x"}`: "no column named task_id; the columns are prompt",
		`{"task_id":"a","prompt":"","entry_point":"f","test":"t"}`:                          "prompt is empty",
		`{"task_id":"a","prompt":["x"],"entry_point":"f","test":"t"}`:                       `column "prompt": want text, have a list`,
		strings.Repeat(`{"task_id":"a","prompt":"p","entry_point":"f","test":"t"}`+"\n", 2): "used twice",
	} {
		b, err := New(file(t, text), nil)
		if err != nil {
			t.Fatal(err)
		}
		var last error
		for _, err := range b.Source().Tasks(t.Context()) {
			last = err
		}
		if last == nil || !strings.Contains(last.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, last, want)
		}
	}
	for _, o := range []string{`{"timeout":0}`, `{"time":3}`} {
		if _, err := New("x.jsonl", []byte(o)); err == nil {
			t.Errorf("options %s are taken", o)
		}
	}
}
