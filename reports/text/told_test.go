package text

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/harness/record"
)

func TestDollars(t *testing.T) {
	for x, want := range map[float64]string{
		0: "$0", 0.00004: "$0.00004", 0.000123: "$0.00012", 0.0015: "$0.0015", 0.0633: "$0.0633", 1.5: "$1.50",
		1e-12: "< $0.00000001",
	} {
		if got := dollars(&x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}

// The pause between an interruption and a resume is no work; of a killed process the journal's last
// entry is its end.
func TestWorked(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	ended := func(s int) *time.Time { x := at(s); return &x }
	run := &record.Run{Started: at(0), Ended: ended(1000)}
	entry := func(s int) record.Entry { return record.Entry{Time: at(s), Kind: "unknown"} }
	collect := func(times ...int) *Summary {
		r, err := Collect(&record.Plan{}, run, func(yield func(record.Entry, error) bool) {
			for _, s := range times {
				if !yield(entry(s), nil) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.Summary("")
	}
	if s := collect(5); *s.WorkedMS != 1000_000 {
		t.Errorf("without spans: %d ms", *s.WorkedMS)
	}
	run.Work = []record.Span{{Began: at(0), Ended: ended(10)}, {Began: at(500)}, {Began: at(600)},
		{Began: at(990), Ended: ended(1000)}}
	if s := collect(5, 9, 501, 507, 995); *s.WorkedMS != 27_000 {
		t.Errorf("%d ms", *s.WorkedMS)
	}
	var b bytes.Buffer
	collect(5, 9, 501, 507, 995).Text(&b, Style{})
	if !strings.Contains(b.String(), "took 27.0 s") {
		t.Error(b.String())
	}
}

func plain1(n int) *record.Plan {
	p := &record.Plan{Run: "r", Repeats: 1, Arms: []record.Arm{{ID: "a", Name: "a"}},
		Benchmarks: []record.Benchmark{{Name: "b"}}}
	for i := range n {
		p.Tasks = append(p.Tasks, record.Task{Benchmark: "b", ID: fmt.Sprint("t", i), Digest: fmt.Sprint("d", i)})
	}
	return p
}

func broke(p *record.Plan, text func(i int) string) func(func(record.Entry, error) bool) {
	return func(yield func(record.Entry, error) bool) {
		for i, task := range p.Tasks {
			id := record.TrialID("a", task.Digest, 1)
			a, _ := json.Marshal(record.Attempt{Arm: "a", Digest: task.Digest, Repeat: 1, Attempt: 1})
			v, _ := json.Marshal(record.Verdict{Final: true, Status: record.Scored, End: record.Broke,
				Error: &record.Fault{Status: record.Scored, Phase: "agent", Class: "broke", Text: text(i)}})
			if !yield(record.Entry{Trial: id, Attempt: 1, Kind: record.KindAttempt, Data: a}, nil) ||
				!yield(record.Entry{Trial: id, Attempt: 1, Kind: record.KindVerdict, Data: v}, nil) {
				return
			}
		}
	}
}

// Different messages of one class are shown apart; numbers alone make no other message.
func TestMessages(t *testing.T) {
	words := []string{"no such file", "no such file", "connection refused", "bad zip", "no such file", "syntax error",
		"stack overflow"}
	p := plain1(len(words))
	r, err := Collect(p, nil, broke(p, func(i int) string { return fmt.Sprintf("pid %d: %s", 40+i, words[i]) }))
	if err != nil {
		t.Fatal(err)
	}
	s := r.Summary("run")
	if len(s.Problems) != 1 || s.Problems[0].Count != len(words) || len(s.Problems[0].Messages) != 5 ||
		s.Problems[0].Messages[0].Count != 3 {
		t.Fatalf("%+v", s.Problems)
	}
	var b bytes.Buffer
	s.Text(&b, Style{})
	for _, want := range []string{"7 × agent broke\n", "3 × pid 40: no such file", "1 × pid 42: connection refused",
		"1 × pid 43: bad zip", "and 2 more"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "syntax error") {
		t.Error(b.String())
	}

	p = plain1(100)
	r, _ = Collect(p, nil, broke(p, func(i int) string { return strings.Repeat("x", i) }))
	s = r.Summary("")
	n := 0
	for _, m := range s.Problems[0].Messages {
		n += m.Count
	}
	if len(s.Problems) != 1 || len(s.Problems[0].Messages) != maxMessages+1 || n != 100 ||
		s.Problems[0].Messages[0].Text != otherMessages {
		t.Errorf("%d messages of %d trials: %+v", len(s.Problems[0].Messages), n, s.Problems[0].Messages[0])
	}
}

func TestDifferences(t *testing.T) {
	arm := func(prompt, def string) *record.Arm { return &record.Arm{Prompt: prompt, Def: json.RawMessage(def)} }
	for _, c := range []struct {
		x, y *record.Arm
		want string
	}{
		{arm("terse", `{"prompt":"c9ad"}`), arm("full", `{"prompt":"12ab"}`), `prompt: "terse" and "full"`},
		{arm("terse", `{"prompt":"c9ad"}`), arm("", `{}`), `prompt: "terse" and none`},
		{arm("terse", `{"prompt":"c9ad"}`), arm("terse", `{"prompt":"12ab"}`),
			`prompt: two texts are called "terse", c9ad and 12ab`},
		{arm("", `{"arg":"echo a > b"}`), arm("", `{"arg":"echo c"}`), `arg: "echo a > b" and "echo c"`},
		{arm("", `{"options":{"run":"\"echo a\""}}`), arm("", `{"options":{"run":"\"echo c\""}}`),
			`options.run: "echo a" and "echo c"`},
		{arm("", `{"arg":"grep \"x\" a"}`), arm("", `{"arg":"true"}`), "arg: `grep \"x\" a` and \"true\""},
		{arm("", `{"arg":"`+strings.Repeat("a", 90)+`bc"}`), arm("", `{"arg":"`+strings.Repeat("a", 90)+`cc"}`),
			"arg: …" + strings.Repeat("a", 20) + "bc\" and …" + strings.Repeat("a", 20) + "cc\""},
		{arm("", `{"params":{"temperature":"0.2"}}`), arm("", `{}`), `params.temperature: 0.2 and none`},
	} {
		if got := strings.Join(differences(c.x, c.y), "; "); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// The class and the status of a failed call are said once.
func TestCallSaidOnce(t *testing.T) {
	for _, c := range []struct {
		call record.Call
		want string
	}{
		{record.Call{Role: "main", Try: 1, Class: "rate", HTTP: 429,
			Error: "model: rate (HTTP 429): slow down (HTTP 429)"},
			"main call 0, try 1: rate limit (HTTP 429): slow down\n"},
		{record.Call{Role: "main", Try: 2, Class: "network", Error: "model: network: connection refused"},
			"main call 0, try 2: no answer: connection refused\n"},
	} {
		data, _ := json.Marshal(c.call)
		var b bytes.Buffer
		err := Story(&b, Style{}, plain1(1), "x", func(yield func(record.Entry, error) bool) {
			yield(record.Entry{Trial: "x", Kind: record.KindCall, Data: data}, nil)
		}, nil)
		if err != nil || !strings.Contains(b.String(), c.want) {
			t.Errorf("%v: %q has no %q", err, b.String(), c.want)
		}
	}
}

// A line of a million letters is not told whole, but for who asks for all.
func TestTop(t *testing.T) {
	code := strings.Repeat("é", 1_000_000) + "\nmore"
	first, rest, more := (&storyWriter{}).top(code)
	if len([]rune(first)) != 500 || rest != "more" || !more {
		t.Errorf("%d letters, %q, %v", len([]rune(first)), rest, more)
	}
	if first, _, _ := (&storyWriter{st: Style{Full: true}}).top(code); len([]rune(first)) != 1_000_000 {
		t.Errorf("%d letters", len([]rune(first)))
	}
}

// Texts among the evidence are printed, what is no text is named.
func TestStoredText(t *testing.T) {
	found, _ := json.Marshal(map[string]any{"stage": 0, "files": map[string]event.Blob{
		"changes": {SHA256: strings.Repeat("ab", 32), Type: "text/plain; charset=utf-8", Size: 12},
		"gone":    {SHA256: strings.Repeat("ef", 32), Type: "text/plain", Size: 12},
		"work":    {SHA256: strings.Repeat("cd", 32), Type: "application/x-tar", Size: 12}}})
	data, err := json.Marshal(record.Evidence{Data: found})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	err = Story(&b, Style{}, plain1(1), "x", func(yield func(record.Entry, error) bool) {
		yield(record.Entry{Trial: "x", Kind: record.KindEvidence, Data: data}, nil)
	}, func(sum string) (io.ReadCloser, error) {
		if sum[0] != 'a' {
			return nil, errors.New("it is not there")
		}
		return io.NopCloser(strings.NewReader("~ /app/a\x1b[2J.py\n+ /etc/x\n")), nil
	})
	got := b.String()
	for _, want := range []string{"file changes, 12 bytes", "│ ~ /app/a.py\n", "│ + /etc/x\n", "it is not there\n",
		"file work, 12 bytes"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q, %v", want, got, err)
		}
	}
	if strings.Count(got, "it is not there") != 1 {
		t.Errorf("what is no text was opened: %q", got)
	}
}
