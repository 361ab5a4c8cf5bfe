package terminalbench

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The tests of this file show fields of docs/harbor.md.

func taskFS(yaml string, over map[string]string) fstest.MapFS {
	files := map[string]string{"task.yaml": yaml, "Dockerfile": "FROM debian\n", "run-tests.sh": "pytest\n",
		"tests/test_outputs.py": "", "solution.sh": "true\n"}
	maps.Copy(files, over)
	out := fstest.MapFS{}
	for name, text := range files {
		if text != "-" {
			out[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		}
	}
	return out
}

func load(t *testing.T, yaml string, over map[string]string) *Task {
	t.Helper()
	task, err := Load(taskFS(yaml, over), "the.task")
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func TestTaskYAML(t *testing.T) {
	ignore := cmpopts.IgnoreFields(Task{}, "Project", "Digest", "Warnings", "SummaryHeaders")
	got := load(t, "# canary GUID 1\ninstruction: |-\n  Do\n  it.\ndifficulty: easy\n", nil)
	want := &Task{ID: "the.task", Instruction: "Do\nit.", AuthorName: "unknown", AuthorEmail: "unknown",
		Difficulty: "easy", Category: "software_engineering", Parser: "pytest",
		AgentTime: 360 * time.Second, TestTime: time.Minute, TestScripts: []string{"run-tests.sh"},
		Solution: "solution.sh"}
	if d := cmp.Diff(want, got, ignore, cmpopts.EquateEmpty()); d != "" {
		t.Error("defaults:", d)
	}
	got = load(t, `
instruction: Do it.
author_name: Ann
author_email: ann@example.org
difficulty: hard
category: games
tags: [a, b]
parser_name: swebench
max_agent_timeout_sec: 900
max_test_timeout_sec: 12.5
run_tests_in_same_shell: true
disable_asciinema: true
estimated_duration_sec: 5
expert_time_estimate_min: 6
junior_time_estimate_min: 7
`, map[string]string{"solution.sh": "-", "solution.yaml": "- command: ls\n"})
	want = &Task{ID: "the.task", Instruction: "Do it.", AuthorName: "Ann", AuthorEmail: "ann@example.org",
		Difficulty: "hard", Category: "games", Tags: []string{"a", "b"}, Parser: "swebench",
		AgentTime: 900 * time.Second, TestTime: 12500 * time.Millisecond, SameShell: true, NoRecording: true,
		Duration: 5, ExpertMinutes: 6, JuniorMinutes: 7,
		TestScripts: []string{"run-tests.sh"}, Solution: "solution.yaml"}
	if d := cmp.Diff(want, got, ignore, cmpopts.EquateEmpty()); d != "" {
		t.Error("all fields:", d)
	}
	// The form of early 2025.
	got = load(t, "descriptions:\n  - key: hard\n    description: no\n  - key: base\n    description: Do "+
		"it.\ntest_scripts: [setup-uv-pytest.sh, run-uv-pytest.sh]\ndifficulty: easy\n",
		map[string]string{"run-tests.sh": "-", "setup-uv-pytest.sh": "x", "run-uv-pytest.sh": "y"})
	if got.Instruction != "Do it." || !slices.Equal(got.TestScripts,
		[]string{"setup-uv-pytest.sh", "run-uv-pytest.sh"}) {
		t.Errorf("%+v", got)
	}
	for yaml, want := range map[string]string{
		"difficulty: easy": "instruction",
		"instruction: x\nmax_test_timeout_sec: soon\n":               "task.yaml:2:",
		"instruction: x\ndifficulty: easy\ntags: 5\ncategory: [a]\n": "task.yaml:",
		"a: [": "task.yaml:",
	} {
		if _, err := Load(taskFS(yaml, nil), "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", yaml, err)
		}
	}
}

func TestVariables(t *testing.T) {
	got := load(t, "instruction: x\ndifficulty: easy\n", map[string]string{"docker-compose.yaml": `
services:
  side:
    image: redis
    container_name: ${T_BENCH_TASK_DOCKER_NAME_PREFIX}__side
  client:
    build: {dockerfile: Dockerfile}
    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}
    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}
    command: [sh, -c, sleep infinity]
    environment: ["TEST_DIR=${T_BENCH_TEST_DIR}"]
    volumes:
      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}
      - ${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}
`}).Project
	c := got.Services["client"]
	if got.Main != "client" || c.Image != "tb__the-task__client" ||
		!slices.Equal(c.Spec.Aliases, []string{"the-task"}) || c.Spec.Env["TEST_DIR"] != "/tests" ||
		!slices.Equal(slices.Sorted(slices.Values(c.Dirs)), []string{"/agent-logs", "/logs"}) ||
		len(c.Spec.Volumes) > 0 || c.Build.Context != "." {
		t.Errorf("%+v", c)
	}
	if s := got.Services["side"]; !slices.Equal(s.Spec.Aliases, []string{"tb__the-task__side"}) {
		t.Errorf("%+v", s)
	}
	for id, want := range map[string]string{"a.b c/d": "a-b-c-d", "-x": "x", "ü": "task",
		strings.Repeat("x", 99): strings.Repeat("x", 40)} {
		if name, _, err := variables(id)("T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME"); name != want || err != nil {
			t.Errorf("%q: %q %v", id, name, err)
		}
	}
	if p := load(t, "instruction: x\ndifficulty: easy\n",
		map[string]string{"docker-compose.yaml": "services: {b: {image: x}, a: {image: y}}"}).Project; p.Main != "b" {
		t.Errorf("without a client the first service is it, not %s", p.Main)
	}
	_, err := Load(taskFS("instruction: x\ndifficulty: easy\n",
		map[string]string{"docker-compose.yaml": "services: {client: {image: '${HOME}'}}"}), "x")
	if err == nil || !strings.Contains(err.Error(), "the variable HOME is none of Terminal-Bench's") {
		t.Error(err)
	}
}

func TestParsers(t *testing.T) {
	tests, flags, _, ok := pytest("FAILED early.py::no\n==== Short Test Summary Info ====\r\nPASSED " +
		"a.py::one\nPASSED a.py::two[x::y]\nSKIPPED [1] a.py:5: why\nXFAIL a.py::three\n" +
		"FAILED a.py::four - assert a - b\nXPASS a.py::five\nERROR b.py - broken\nnothing\n==== 1 failed ====\n")
	var got []string
	for _, x := range tests {
		got = append(got, x.Name+"="+x.Status)
	}
	want := []string{"one=passed", "two[x::y]=passed", "[1] a.py:5: why=skipped", "three=passed",
		"four - assert a=failed", "five=failed", "b.py=error"}
	if d := cmp.Diff(want, got); d != "" || !ok || len(flags) > 0 {
		t.Error(d, ok, flags)
	}
	if _, _, why, ok := pytest("1 passed"); ok || !strings.Contains(why, "-rA") {
		t.Error("without a summary:", why)
	}
	sure := func(tests []record.Test) bool {
		return len(tests) > 0 && !slices.ContainsFunc(tests, func(x record.Test) bool { return !passed(x) })
	}
	for out, want := range map[string]bool{
		"SWEBench results starts here\nPASSED\nSWEBench results ends here":       true,
		"SWEBench results starts here\r\n PASSED \r\nSWEBench results ends here": true,
		"SWEBench results starts here\nFAILED\nSWEBench results ends here":       false,
		"SWEBench results starts here\nPASSED x\nSWEBench results ends here":     false,
	} {
		if tests, _, _, ok := parsers["swebench"](out); !ok || sure(tests) != want {
			t.Errorf("%q: %v %v", out, tests, ok)
		}
	}
	if _, _, _, ok := parsers["swebench"]("PASSED"); ok {
		t.Error("without its marks")
	}
	// An empty summary is no success.
	x := &grading{task: &Task{Parser: "pytest"}}
	if r := x.judge("=== short test summary info ===\n"); *r.Primary().Value != 0 ||
		!slices.Contains(r.Flags, FlagNoTests) {
		t.Errorf("%+v", r)
	}
	if r := x.judge("=== short test summary info ===\nPASSED a::b\n"); *r.Primary().Value != 1 || len(r.Tests) != 1 {
		t.Errorf("%+v", r)
	}
	if r := x.judge("nothing"); *r.Primary().Value != 0 || !slices.Contains(r.Flags, FlagParse) {
		t.Errorf("%+v", r)
	}
	if n := load(t, "instruction: x\ndifficulty: easy\nparser_name: sweperf\n", nil).Skip; !strings.Contains(n,
		"is not published") {
		t.Errorf("a parser that nobody knows: %q", n)
	}
}

// plain is the driver local, for which images and what goes with them are dropped.
type plain struct{ sandbox.Driver }

func (p plain) Create(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	s.Image, s.Setuid, s.Network, s.Entrypoint, s.Cmd, s.Rewire = sandbox.Image{}, false, sandbox.Network{}, nil, nil,
		false
	return p.Driver.Create(ctx, s)
}

func TestTimeout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "slow")
	for name, f := range taskFS("instruction: x\ndifficulty: easy\nmax_test_timeout_sec: 0.3\n",
		map[string]string{"run-tests.sh": "echo '=== short test summary info ==='\necho 'PASSED a::b'\nsleep 600\n"}) {
		p := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(p), 0o755)
		if err := os.WriteFile(p, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var task datasets.Task
	for x, err := range b.Source().Tasks(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		task = x
	}
	nop := agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) { return agent.Answer{}, nil })
	p, err := benchtest.Play(t.Context(),
		benchtest.Session{Benchmark: b, Driver: plain{benchtest.Local(t)}, Task: task, Agent: nop})
	if err != nil {
		t.Fatal(err)
	}
	r := p.Results[0]
	if *r.Primary().Value != 0 || !slices.Contains(r.Flags, FlagTimeout) ||
		!slices.Contains(r.Flags, benchmarks.FlagNoReward) || !strings.Contains(r.Primary().Why, "test_timeout") {
		t.Errorf("%+v", r)
	}
}
