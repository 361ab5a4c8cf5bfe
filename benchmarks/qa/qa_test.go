package qa

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/datasets"
)

// data is a file of the shared test data; the test is skipped where it is not there.
func data(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("EVALRUN_TEST_DATA")
	if dir == "" {
		t.Skip("set EVALRUN_TEST_DATA to a folder that holds " + name)
	}
	return filepath.Join(dir, name)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func open(t *testing.T, path, opts string) *Benchmark {
	t.Helper()
	b, err := New(path, []byte(opts))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func all(t *testing.T, b *Benchmark) (tasks []datasets.Task, errs []error) {
	t.Helper()
	for task, err := range b.Source().Tasks(t.Context()) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		tasks = append(tasks, task)
	}
	return tasks, errs
}

func grade(t *testing.T, b *Benchmark, task datasets.Task, answer string) float64 {
	t.Helper()
	ev := benchmarks.Evidence{Answer: agent.Answer{Parts: event.Text(answer)}}
	if answer == "" {
		ev.Answer.Parts = nil
	}
	r, err := b.Grade(t.Context(), nil, task, ev, nil)
	if err != nil {
		t.Fatal(err)
	}
	return *r.Primary().Value
}

func TestGSM8K(t *testing.T) {
	b := open(t, data(t, "gsm8k-test.jsonl"), "")
	tasks, errs := all(t, b)
	if len(tasks) != 1319 || len(errs) != 0 {
		t.Fatalf("%d tasks, errors %v", len(tasks), errs)
	}
	for _, task := range tasks {
		q, _ := decode(task)
		if got := grade(t, b, task, q.Known); got != 1 {
			t.Errorf("task %s: the known answer scores %v", task.ID, got)
		}
		if got := grade(t, b, task, "So it is $"+q.Spec.Right[0]+".00 in all.\nANSWER: **"+q.Spec.Right[0]+
			"**"); got != 1 {
			t.Errorf("task %s: the right answer as a sentence scores %v", task.ID, got)
		}
		if got := grade(t, b, task, ""); got != 0 {
			t.Errorf("task %s: no answer scores %v", task.ID, got)
		}
	}
	again, err := b.Source().Task(t.Context(), "700")
	if err != nil || again.Digest != tasks[699].Digest {
		t.Errorf("task 700 read again: %v, %q", err, again.Digest)
	}
}

func TestColumns(t *testing.T) {
	for name, c := range map[string]struct {
		file, text, opts string
		right, wrong     string
	}{
		"several right answers": {"q.jsonl", `{"id":"x","question":"q","answers":["Paris","City of Light"]}`, "",
			"city of light", "London"},
		"choices by letter": {"q.jsonl", `{"question":"q","choices":["u","v","w"],"answer":"B"}`, "", "ANSWER: (b)",
			"A"},
		"choices by index": {"q.jsonl", `{"question":"q","choices":["u","v","w"],"answer":2}`, "", "C", "B"},
		"choices by text": {"q.jsonl", `{"question":"q","choices":["u","v","w"],"answer":"v"}`, "", "B) v",
			"none"},
		"csv": {"q.csv", "question,answer\nhow many?,\"1,200\"\n", "", "about 1200", "12"},
		"named": {"q.csv", "frage;x,antwort\nwer?,Ada\n", `{"question":"frage;x","answer":"antwort"}`,
			"ada.", "Bob"},
		"includes": {"q.jsonl", `{"question":"q","answer":"blue whale"}`,
			`{"scorer":"includes","ignore_case":true}`, "It is the Blue  Whale!", "a whale"},
		"regex":     {"q.jsonl", `{"question":"q","answer":"^v\\d+$"}`, `{"scorer":"regex"}`, "v12", "v"},
		"tolerance": {"q.jsonl", `{"question":"q","answer":3.14}`, `{"tolerance":0.01}`, "3.1415", "3.2"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, write(t, c.file, c.text), c.opts)
			tasks, errs := all(t, b)
			if len(tasks) != 1 || errs != nil {
				t.Fatalf("%d tasks, errors %v", len(tasks), errs)
			}
			if got := grade(t, b, tasks[0], c.right); got != 1 {
				t.Errorf("%q scores %v", c.right, got)
			}
			if got := grade(t, b, tasks[0], c.wrong); got != 0 {
				t.Errorf("%q scores %v", c.wrong, got)
			}
			if ag, err := b.Solve(tasks[0]); err == nil {
				ans, _ := ag.Run(t.Context(), nil)
				if got := grade(t, b, tasks[0], ans.Text()); got != 1 {
					t.Errorf("the oracle's %q scores %v", ans.Text(), got)
				}
			}
		})
	}
}

func TestBadRows(t *testing.T) {
	b := open(t, write(t, "q.jsonl", `{"question":"a","answer":"1"}
{"question":"b","answer":""}
{"question":"c"}
{"question":"d","answer":"[","id":null}
`), `{"scorer":"regex"}`)
	tasks, errs := all(t, b)
	if len(tasks) != 1 || len(errs) != 3 {
		t.Fatalf("%d tasks, errors %v", len(tasks), errs)
	}
	for i, want := range []string{`:2: task "2": the answer is empty`, `:3: no column named answer, `,
		`:4: column "id": "" is no task ID`} {
		if !strings.Contains(errs[i].Error(), want) {
			t.Errorf("error %d is %q, want %q in it", i, errs[i], want)
		}
	}
	_, errs = all(t, open(t, write(t, "q.csv", "a,b\n1,2\n"), ""))
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), `no column named question`) {
		t.Errorf("a file without the column: %v", errs)
	}
	if _, err := New("q.jsonl", []byte(`{"anwser":"x"}`)); err == nil || !strings.Contains(err.Error(), "anwser") {
		t.Errorf("an unknown option: %v", err)
	}
}
