package tape_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/model/tape"
)

func request(s string) *model.Request {
	return &model.Request{Messages: []model.Message{{Role: model.User, Parts: event.Text(s)}}}
}

func binding(task string, repeat int) model.Binding {
	return model.Binding{Benchmark: "qa", Task: task, Repeat: repeat, Attempt: 1, Arm: "a", Role: "main"}
}

// echo says whose call it answers.
func echo(_ context.Context, b model.Binding, n int, req *model.Request) (*model.Response, error) {
	r := modeltest.Calls("tool", fmt.Sprintf(`{"who":"%s/%d/%s/%d"}`, b.Task, b.Repeat, b.Arm, n))
	r.Raw = []byte(strings.Repeat("x", 10_000))
	cost := 0.25
	r.Usage.Cost = &cost
	return &r, nil
}

func record(t *testing.T, path string, f model.Factory, play func(f model.Factory)) {
	t.Helper()
	rec, err := tape.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	play(rec.Wrap(f, model.Params{}))
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
}

func generate(t *testing.T, f model.Factory, b model.Binding, prompts ...string) []string {
	t.Helper()
	c, err := f(b)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range prompts {
		r, err := c.Generate(t.Context(), request(p))
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		out = append(out, r.Calls[0].Args)
	}
	return out
}

func open(t *testing.T, path string, o tape.Options) *tape.Tape {
	t.Helper()
	tp, err := tape.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tp.Close() })
	return tp
}

// Trials and repeats at once, recorded in any order and replayed in any other.
func TestConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	all := func(f model.Factory) map[string][]string {
		var mu sync.Mutex
		got := map[string][]string{}
		var wg sync.WaitGroup
		for i := range 20 {
			for repeat := 1; repeat <= 3; repeat++ {
				wg.Go(func() {
					b := binding(fmt.Sprintf("t%d", i), repeat)
					said := generate(t, f, b, "one", "two", "three")
					mu.Lock()
					defer mu.Unlock()
					got[fmt.Sprint(i, repeat)] = said
				})
			}
		}
		wg.Wait()
		return got
	}
	var want map[string][]string
	record(t, path, modeltest.Func(echo).Factory(0), func(f model.Factory) { want = all(f) })
	tp := open(t, path, tape.Options{Strict: true})
	if d := cmp.Diff(want, all(tp.Factory("func", model.Params{}))); d != "" {
		t.Errorf("replayed (-want +got):\n%s", d)
	}
	if st, err := os.Stat(path); err != nil || st.Size() > 180*600 {
		t.Errorf("%d bytes for 180 replies (%v): raw bodies do not belong on a tape", st.Size(), err)
	}
}

func TestReplayIsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	cost := 0.5
	want := model.Response{
		ID: "chatcmpl-1", Model: "m-1", Parts: event.Text("<&> \u2028"), Reasoning: "hm", Stop: "tool_calls",
		Opaque: []byte(`{"a":1}`),
		Calls:  []event.ReplyCall{{ID: "1", Name: "x", Args: `{"broken`}},
		Usage:  event.Usage{In: 3, Out: 2, Cached: 1, Reasoning: 1, Cost: &cost},
	}
	record(t, path, modeltest.Script(want).Factory(0), func(f model.Factory) {
		c, err := f(binding("t", 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Generate(t.Context(), request("x")); err != nil {
			t.Fatal(err)
		}
	})
	var tries []model.Try
	b := binding("t", 1)
	b.Try = func(x model.Try) { tries = append(tries, x) }
	c, err := open(t, path, tape.Options{}).Factory("func", model.Params{})(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Generate(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	want.From = "tape"
	if d := cmp.Diff(&want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(tries) != 1 || tries[0].From != "tape" || tries[0].Response != got ||
		tries[0].Request != request("x").Hash() {
		t.Errorf("tries %+v", tries)
	}
}

func TestWhichReply(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	say := func(text, arm string, attempt int) {
		record(t, path, modeltest.Script(modeltest.Calls("x", text)).Factory(0), func(f model.Factory) {
			b := binding("t", 1)
			b.Arm, b.Attempt = arm, attempt
			generate(t, f, b, "prompt of "+arm)
		})
	}
	say("a1", "a", 1)
	say("a2", "a", 2)
	say("b1", "b", 1)
	for _, tt := range []struct {
		arm, prompt string
		strict      bool
		want        string
	}{
		{"a", "prompt of a", true, "a2"},
		{"b", "prompt of b", true, "b1"},
		{"c", "prompt of b", true, "b1"},
		{"a", "prompt of b", true, "b1"},
		{"a", "changed", false, "a2"},
		{"b", "changed", false, "b1"},
		{"c", "changed", false, "a2"},
		{"a", "changed", true, "have changed since"},
	} {
		b := binding("t", 1)
		b.Arm = tt.arm
		got := generate(t, open(t, path, tape.Options{Strict: tt.strict}).Factory("func", model.Params{}), b,
			tt.prompt)[0]
		if got != tt.want && !strings.Contains(got, "no reply") || !strings.Contains(got, tt.want) {
			t.Errorf("arm %s, %q, strict %v: %q, want %q", tt.arm, tt.prompt, tt.strict, got, tt.want)
		}
	}
}

func TestMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	record(t, path, modeltest.Func(echo).Factory(0), func(f model.Factory) { generate(t, f, binding("t", 1), "one") })
	tp := open(t, path, tape.Options{})
	for name, b := range map[string]model.Binding{
		"task": binding("u", 1), "repeat": binding("t", 2),
		"actor": {Benchmark: "qa", Task: "t", Repeat: 1, Role: "main", Actor: "1"},
		"role":  {Benchmark: "qa", Task: "t", Repeat: 1, Role: "grader"},
	} {
		c, err := tp.Factory("func", model.Params{})(b)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Generate(t.Context(), request("one"))
		var e *model.Error
		var m *tape.Missing
		if !errors.As(err, &e) || e.Class != model.Invalid || e.Provider() || !errors.As(err, &m) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	if got := generate(t, tp.Factory("func", model.Params{}), binding("t", 1), "one", "two"); !strings.Contains(got[1],
		"call 2 (main) of qa/t, repeat 1") {
		t.Errorf("the second call: %v", got)
	}
	if got := generate(t, tp.Factory("other", model.Params{}), binding("t", 1), "one"); !strings.Contains(got[0],
		"no reply") {
		t.Errorf("another model: %v", got)
	}
	if d := cmp.Diff([]string{"func"}, tp.Models()); d != "" {
		t.Error(d)
	}
}

func TestBadTapes(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.jsonl")
	record(t, good, modeltest.Func(echo).Factory(0),
		func(f model.Factory) { generate(t, f, binding("t", 1), "one", "two") })
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ data, want string }{
		"torn end":   {string(data) + `{"v":1,"bench`, ""},
		"torn after": {string(data[:len(data)-1]), ""},
		"bad middle": {"{\n" + string(data), "bad.jsonl:1: "},
		"newer":      {strings.Replace(string(data), `"v":2`, `"v":3`, 1), "version 3"},
		"not a tape": {"{}\n", "version 0"},
		"empty":      {"", ""},
	} {
		path := filepath.Join(dir, "bad.jsonl")
		if err := os.WriteFile(path, []byte(tt.data), 0o644); err != nil {
			t.Fatal(err)
		}
		tp, err := tape.Open(path, tape.Options{})
		if err == nil {
			tp.Close()
		}
		if tt.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A recorder goes on behind the last whole line.
	path := filepath.Join(dir, "torn.jsonl")
	if err := os.WriteFile(path, []byte(string(data)+`{"v":1,"ben`), 0o644); err != nil {
		t.Fatal(err)
	}
	record(t, path, modeltest.Func(echo).Factory(0), func(f model.Factory) { generate(t, f, binding("u", 1), "one") })
	tp := open(t, path, tape.Options{})
	for _, task := range []string{"t", "u"} {
		if got := generate(t, tp.Factory("func", model.Params{}), binding(task, 1), "one"); !strings.Contains(got[0],
			task+"/1") {
			t.Errorf("%s: %v", task, got)
		}
	}
	if _, err := tape.Open(filepath.Join(dir, "none"), tape.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestDelay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	record(t, path, modeltest.Func(echo).Factory(0), func(f model.Factory) { generate(t, f, binding("t", 1), "one") })
	tp := open(t, path, tape.Options{Delay: time.Hour})
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if got := generate(t, tp.Factory("func", model.Params{}), binding("t", 1),
			"one"); time.Since(begun) != time.Hour {
			t.Errorf("%v after %v", got, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := tp.Factory("func", model.Params{})(binding("t", 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Generate(ctx, request("one")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// A strict replay is refused with other sampling parameters, wherever they are said; a loose one is
// not.
func TestSampling(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	temperature := func(x float64) model.Params { return model.Params{Temperature: &x} }
	rec, err := tape.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	generate(t, rec.Wrap(modeltest.Func(echo).Factory(0), temperature(0.2)), binding("t", 1), "one")
	generate(t, rec.Wrap(modeltest.Func(echo).Factory(0), model.Params{}), binding("none", 1), "one")
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	strict, loose := open(t, path, tape.Options{Strict: true}), open(t, path, tape.Options{})
	if got := generate(t, strict.Factory("func", temperature(0.2)), binding("t", 1), "one"); !strings.Contains(got[0],
		"t/1") {
		t.Errorf("the same: %v", got)
	}
	for _, tt := range []struct {
		task   string
		params model.Params
		want   string
	}{
		{"t", temperature(0.7), `{"temperature":0.7}; recorded were: {"temperature":0.2}`},
		{"t", temperature(0), `{"temperature":0}; recorded were: {"temperature":0.2}`},
		{"t", model.Params{}, `none; recorded were: {"temperature":0.2}`},
		{"none", temperature(0.2), `{"temperature":0.2}; recorded were: none`},
	} {
		if got := generate(t, strict.Factory("func", tt.params), binding(tt.task, 1), "one"); !strings.Contains(got[0],
			tt.want) {
			t.Errorf("%s: %v, want %s", tt.task, got, tt.want)
		}
		if got := generate(t, loose.Factory("func", tt.params), binding(tt.task, 1), "one"); !strings.Contains(got[0],
			tt.task+"/1") {
			t.Errorf("%s, loose: %v", tt.task, got)
		}
	}
	// A request's own parameters count in place of the arm's.
	c, err := strict.Factory("func", temperature(0.7))(binding("t", 1))
	if err != nil {
		t.Fatal(err)
	}
	req := request("one")
	req.Params = temperature(0.2)
	if _, err := c.Generate(t.Context(), req); err == nil || !strings.Contains(err.Error(), "have changed") {
		t.Errorf("a request that says its parameters is another request: %v", err)
	}
	// Tapes of before do not say.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.ReplaceAll(strings.ReplaceAll(string(data), `"v":2`, `"v":1`), `"params":{"temperature":0.2},`, "")
	if err := os.WriteFile(path, []byte(old), 0o644); err != nil {
		t.Fatal(err)
	}
	tp := open(t, path, tape.Options{Strict: true})
	if got := generate(t, tp.Factory("func", temperature(0.7)), binding("t", 1), "one"); !tp.Old() || strict.Old() ||
		!strings.Contains(got[0], "t/1") {
		t.Errorf("version 1: %v", got)
	}
}

// Recorders of one tape do not write over each other: the second is refused while the first is
// open, and goes on behind it later.
func TestOneRecorder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	first, err := tape.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tape.Create(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second recorder: %v", err)
	}
	generate(t, first.Wrap(modeltest.Func(echo).Factory(0), model.Params{}), binding("t", 1), "one")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	record(t, path, modeltest.Func(echo).Factory(0), func(f model.Factory) { generate(t, f, binding("u", 1), "one") })
	tp := open(t, path, tape.Options{Strict: true})
	for _, task := range []string{"t", "u"} {
		if got := generate(t, tp.Factory("func", model.Params{}), binding(task, 1), "one"); !strings.Contains(got[0],
			task+"/1") {
			t.Errorf("%s: %v", task, got)
		}
	}
}

// On tapes of version 1 each stage of a trial began at call 0.
func TestOldStages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.jsonl")
	var lines strings.Builder
	for i, n := range []int{0, 1, 0, 0, 1, 2} { // three stages
		for _, arm := range []string{"a", "b"} {
			fmt.Fprintf(&lines, `{"v":1,"benchmark":"qa","task":"t","repeat":1,"actor":"","role":"main","model":"func","n":%d,"attempt":1,"arm":%q,"request":%q,"reply":{"id":"","calls":[{"name":"x","args":"%s%d"}]}}`+"\n",
				n, arm, request(fmt.Sprint(i)).Hash(), arm, i)
		}
	}
	if err := os.WriteFile(path, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	tp := open(t, path, tape.Options{Strict: true})
	for _, arm := range []string{"a", "b"} {
		b := binding("t", 1)
		b.Arm = arm
		got := generate(t, tp.Factory("func", model.Params{}), b, "0", "1", "2", "3", "4", "5")
		if want := strings.Fields(strings.ReplaceAll("x0 x1 x2 x3 x4 x5", "x", arm)); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
