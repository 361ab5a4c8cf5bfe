package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model/modeltest"
)

// The files in testdata/baseline say what users and their programs rely on: the effective
// configurations of the examples, the JSON Schema of configurations, identities of arms and trials,
// the forms of plan.json, summary.json and of each table, and every byte that models are sent. A
// change of one of them is a change for users. -update writes them anew.

// golden compares text with a file of testdata/baseline.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "baseline", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); d != "" {
		t.Errorf("%s has changed (-was +now):\n%s", file, d)
	}
}

// evalrun runs the program and returns what it prints to stdout.
func evalrun(t *testing.T, dir string, env []string, args ...string) []byte {
	t.Helper()
	c := exec.Command("evalrun", args...) // which testscript.Main has put on the path
	c.Dir = dir
	c.Env = slices.Concat(os.Environ(), []string{"HOME=" + t.TempDir(), "OPENAI_API_KEY=none", "OPENAI_BASE_URL="}, env)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("evalrun %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out
}

func TestBaselineConfiguration(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"nightly.yaml", "compare-prompts.yaml", "demo/demo.yaml", "agent-python/host.yaml", "agent-python/sandbox.yaml",
	} {
		got := evalrun(t, ".", nil, "config", "show", filepath.Join(examples, name))
		got = bytes.ReplaceAll(got, []byte(examples), []byte("EXAMPLES"))
		golden(t, "effective-"+filepath.Base(name), got)
	}
	golden(t, "configuration.schema.json", evalrun(t, ".", nil, "config", "schema"))
}

// varying are the keys whose values differ from run to run.
var varying = regexp.MustCompile(`_ms$|^(run|path|version|created|started|ended|slowest)$`)

// shape is a JSON value as it is in each run: its keys in their order, with the values that do not
// vary.
func shape(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var value func(indent string, hide bool)
	value = func(indent string, hide bool) {
		tok, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		switch tok {
		case json.Delim('{'):
			for d.More() {
				key, err := d.Token()
				if err != nil {
					t.Fatal(err)
				}
				fmt.Fprintf(&b, "\n%s%s:", indent, key)
				value(indent+"  ", hide || varying.MatchString(key.(string)))
			}
			_, _ = d.Token()
		case json.Delim('['):
			for d.More() {
				fmt.Fprintf(&b, "\n%s-", indent)
				value(indent+"  ", hide)
			}
			_, _ = d.Token()
		default:
			if hide {
				fmt.Fprintf(&b, " (%T)", tok)
				return
			}
			v, err := json.Marshal(tok)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, " %s", v)
		}
	}
	value("", false)
	b.WriteByte('\n')
	return b.Bytes()
}

// baselineConfig is a run of questions. The service is reached through a proxy, since its address
// is a part of what identifies an arm.
const baselineConfig = `
name: baseline
benchmarks:
  - {name: qa, path: questions.jsonl, options: {scorer: includes}}
  - {name: quickstart, select: {ids: [zeros]}}
models:
  small: {name: openai/small, base_url: "http://model.invalid/v1", price: {in: 1, out: 2}}
arms:
  - {agent: {name: codeact, options: {max_idle: -1}}, model: small}
  - {name: terse, agent: codeact, model: small, prompt: terse.md, params: {temperature: 0.5}, limits: {turns: 3}}
  - agent: oracle
  - agent: nop
repeats: 2
seed: 7
workers: 1
`

const baselineQuestions = `{"id": "two", "question": "1 + 1?", "answer": "2", "level": "easy"}
{"id": "three", "question": "1 + 2?", "answer": "3"}
`

// serve starts a service and returns the environment of a program that reaches it.
func serve(t *testing.T, reply func(modeltest.Call) modeltest.Reply) (*modeltest.Server, []string) {
	s := modeltest.NewServer(t, reply)
	proxy := strings.TrimSuffix(s.URL, "/v1")
	return s, []string{"HTTP_PROXY=" + proxy, "http_proxy=" + proxy, "NO_PROXY=", "no_proxy="}
}

func TestBaselineRun(t *testing.T) {
	_, env := serve(t, func(c modeltest.Call) modeltest.Reply {
		last := c.Body.Messages[len(c.Body.Messages)-1]
		text := fmt.Sprintf("I think it is %d.", len(last.Content)%2+2)
		return modeltest.Reply{Text: text, Usage: event.Usage{In: 1000, Cached: 10, Out: 20}}
	})
	dir := t.TempDir()
	for name, text := range map[string]string{
		"run.yaml": baselineConfig, "questions.jsonl": baselineQuestions, "terse.md": "Be terse.\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := filepath.Join(dir, "out")
	evalrun(t, dir, env, "run", "run.yaml", "-o", run, "-q")
	for _, name := range []string{"plan.json", "summary.json"} {
		data, err := os.ReadFile(filepath.Join(run, name))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, bytes.ReplaceAll(shape(t, data), []byte(dir), []byte("DIR")))
	}

	var tables bytes.Buffer
	for _, table := range []string{"arms", "attempts", "changes", "events", "model_calls", "scores", "tasks", "tests",
		"trials"} {
		parts, err := filepath.Glob(filepath.Join(run, "parquet", table, "*.parquet"))
		if err != nil || len(parts) == 0 {
			t.Fatalf("table %s: %v, %v", table, parts, err)
		}
		f, err := os.Open(parts[0])
		if err != nil {
			t.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		p, err := parquet.OpenFile(f, st.Size())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&tables, "%s: %s\n", table, p.Schema())
		f.Close()
	}
	golden(t, "tables.txt", tables.Bytes())

	// Which trial is which: what a resume, a tape and a comparison go by.
	var trials []string
	for line := range bytes.Lines(evalrun(t, dir, nil, "show", run, "--trials", "--json")) {
		var v struct {
			Trial, Arm, Benchmark, Task string
			ArmID                       string `json:"arm_id"`
			Repeat                      int
			Reward                      *float64
			Status, End                 string
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		trials = append(trials, fmt.Sprintf("%s %s %s/%s #%d", v.Trial, v.Arm, v.Benchmark, v.Task, v.Repeat))
	}
	slices.Sort(trials)
	golden(t, "trials.txt", []byte(strings.Join(trials, "\n")+"\n"))
}

// TestBaselinePrompts records what models are sent, whole: prompts, tools, observations.
func TestBaselinePrompts(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_LOCAL") == "" {
		t.Skip("EVALRUN_TEST_LOCAL is not set")
	}
	call := func(name, args string) []event.ReplyCall { return []event.ReplyCall{{ID: "c", Name: name, Args: args}} }
	for _, x := range []struct {
		name, agent, task string
		browser           bool
		replies           []modeltest.Reply
	}{
		{"codeact-shell", "codeact", "settings", false, []modeltest.Reply{
			{Calls: call("execute_bash", `{"command": "pwd; ls -A; cat no-such-file"}`)},
			{Calls: call("execute_bash", `{"command": "exit 3"}`)},
			{Calls: call("no_such_tool", `{}`)},
			{Calls: call("execute_bash", `not JSON`)},
			{Text: "I wonder."},
			{Calls: call("finish", `{"message": "done"}`)},
		}},
		{"codeact-stages", "codeact", "inventory", false, []modeltest.Reply{
			{Calls: call("finish", `{"message": "done"}`)},
		}},
		{"codeact-question", "codeact", "zeros", false, []modeltest.Reply{{Text: "7"}}},
		{"codeact-browser", "codeact", "web-form", true, []modeltest.Reply{
			{Calls: call("browser", `{"code": "noop()"}`)},
			{Calls: call("browser", `{"code": "click('no-such-bid')"}`)},
			{Calls: call("finish", `{"message": "done"}`)},
		}},
		{"browse", "browse", "web-table", true, []modeltest.Reply{
			{Text: "<think>Let me see.</think>\n<action>\nscroll(0, 200)\n</action>"},
			{Text: "<action>\nclick('no-such-bid')\n</action>"},
			{Text: "no action at all"},
			{Text: "<action>\nsend_msg_to_user('done')\n</action>"},
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			if here, err := browserHere(false); x.browser && !here {
				t.Skip("no browser for tests (EVALRUN_TEST_BROWSER=1): ", err)
			}
			s, env := serve(t, modeltest.Replies(x.replies...))
			dir := t.TempDir()
			evalrun(t, dir, env, "run", "quickstart", "--ids", x.task, "--agent", x.agent,
				"-m", "openai/small", "--base-url", "http://model.invalid/v1", "--turns", fmt.Sprint(len(x.replies)),
				"-o", "out", "-q")
			var b bytes.Buffer
			for _, c := range s.Calls() {
				if err := json.Indent(&b, c.Raw, "", " "); err != nil {
					t.Fatal(err)
				}
				b.WriteByte('\n')
			}
			golden(t, "requests-"+x.name+".json", b.Bytes())
		})
	}
}
