package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/tasks"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// load makes a benchmark of a file's text, with files beside it.
func load(t *testing.T, name, text string, beside ...string) *tasks.Benchmark {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(beside); i += 2 {
		p := filepath.Join(dir, beside[i])
		os.MkdirAll(filepath.Dir(p), 0o755)
		if err := os.WriteFile(p, []byte(beside[i+1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := tasks.New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// read lists the IDs and errors of a benchmark; folders are cut out of errors.
func read(t *testing.T, b *tasks.Benchmark) (list []datasets.Task, text string) {
	t.Helper()
	var out []string
	for task, err := range b.Source().Tasks(t.Context()) {
		if err == nil {
			list = append(list, task)
			out = append(out, task.ID)
			continue
		}
		kind := "fatal "
		if errors.As(err, new(*datasets.BadTask)) {
			kind = "bad "
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			for _, word := range strings.Fields(line) {
				if strings.HasPrefix(word, os.TempDir()) {
					line = strings.ReplaceAll(line, word[:strings.LastIndex(word, "/")+1], "")
				}
			}
			out = append(out, kind+line)
			kind = "  "
		}
	}
	return list, strings.Join(out, "\n")
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown keys, all at once": {`
tasks:
  - id: a
    instruktion: x
    instruction: y
    answer: 1
    limits: {memroy: 1MB, disk: much}
    grade: {scorer: exact, pratial: true}
  - id: b
    instruction: fine
    answer: 2
`, `bad tasks.yaml:4:5: task "a": tasks[0].instruktion: unknown key; did you mean "instruction"?
  tasks.yaml:7:14: tasks[0].limits.memroy: unknown key; did you mean "memory"?
  tasks.yaml:7:33: tasks[0].limits.disk: size "much"; want one such as 512MB or 2GiB
  tasks.yaml:8:28: tasks[0].grade.pratial: unknown key; did you mean "partial"?
b`},
		"of the file": {"nam: x\ntask: []\n",
			"fatal tasks.yaml:1:1: nam: unknown key; did you mean \"name\"?\n  tasks.yaml:2:1: task: unknown key; " +
				"did you mean \"tasks\"?"},
		"syntax": {"tasks:\n  - id: [\n",
			"fatal tasks.yaml:2:9: not valid YAML: sequence end token ']' not found"},
		"empty":    {"", "fatal tasks.yaml: the file is empty; see docs/own-benchmark.md for its form"},
		"no tasks": {"name: x\n", "fatal tasks.yaml: it holds no tasks"},
		"a scalar": {"hello\n",
			"fatal tasks.yaml: want a list of tasks, or keys and values with a list named tasks"},
		"twice": {"- {id: a, instruction: x, answer: 1}\n- {id: a, instruction: x, answer: 1}\n",
			"fatal tasks.yaml:2:3: task id \"a\" is used twice; the first is at tasks.yaml:1:3"},
		"no id":          {"- {instruction: x, answer: 1}", "bad tasks.yaml:1:3: the task has no id"},
		"no instruction": {"- {id: a, answer: 1}", `bad tasks.yaml:1:3: task "a": no instruction`},
		"no grade": {"- {id: a, instruction: x}",
			`bad tasks.yaml:1:3: task "a": it is graded in 0 ways; want one of grade.script, grade.function and answer`},
		"two grades": {"- {id: a, instruction: x, answer: 1, grade: {script: 'true'}}",
			`bad tasks.yaml:1:3: task "a": answer stands beside a grade of another kind, or with an answer of its own: keep one`},
		"wrong types": {"- {id: [1], instruction: {a: b}, answer: 1, leave: maybe, time: soon, " +
			"limits: {cpus: x}}", "bad tasks.yaml:1:8: tasks[0].id: expected text, found a list\n  tasks.yaml:1:26: " +
			"tasks[0].instruction: expected text, found a mapping\n  tasks.yaml:1:52: tasks[0].leave: expected true " +
			"or false, found \"maybe\"\n  tasks.yaml:1:65: tasks[0].time: duration \"soon\"; want one such as 90s or " +
			"5m\n  tasks.yaml:1:86: tasks[0].limits.cpus: expected a number, found \"x\""},
		"paths that leave": {"- {id: a, instruction: x, answer: 1, files: {../x: y, /etc/p: z, ok: {from: " +
			"../../etc}, no: {from: missing}}}",
			"bad tasks.yaml:1:45: task \"a\": tasks[0].files: \"../x\": want a relative path, without \".\" and " +
				"\"..\" in it\n  tasks.yaml:1:45: tasks[0].files: \"/etc/p\": want a relative path, without \".\" " +
				"and \"..\" in it\n  tasks.yaml:1:45: tasks[0].files: \"ok\": from \"../../etc\" leaves the folder " +
				"of the tasks"},
		"missing file": {"- {id: a, instruction: x, answer: 1, files: {no: {from: missing}}}",
			`bad tasks.yaml:1:45: task "a": tasks[0].files: "no": from "missing": no such file beside the tasks`},
		"bad scorer": {"- {id: a, instruction: x, answer: '(', grade: {scorer: regex}}",
			"bad tasks.yaml:1:35: task \"a\": tasks[0].answer: error parsing regexp: missing closing ): `(`"},
		"leave alone": {"- {id: a, instruction: x, leave: true, grade: {script: 'true'}}",
			`bad tasks.yaml:1:3: task "a": leave keeps processes for a grader in the same machine: add grade.shared`},
		"stages and own": {"- {id: a, instruction: x, stages: [{instruction: y, answer: 1}, {instruction: y, " +
			"answer: 2}]}", "bad tasks.yaml:1:3: task \"a\": the task has stages, so instruction, answer, grade, " +
			"oracle, leave and time belong into them (files and setup may stay: they come first)\n  tasks.yaml:1:3: " +
			"tasks[0]: stage 2: its instruction is an earlier stage's"},
		"strange script": {"- id: a\n  instruction: x\n  grade: {script: \"#!/usr/bin/perl\\nprint 1\"}\n",
			`bad tasks.yaml:3:19: task "a": tasks[0].grade.script: its first line is "#!/usr/bin/perl"; scripts run with bash, sh or python3`},
		"network": {"- {id: a, instruction: x, answer: 1, network: all}",
			`bad tasks.yaml:1:47: task "a": tasks[0].network: network "all"; want none, public, or a list of hosts`},
		"aliases": {"x-a: &a {instruction: x}\ntasks:\n  - {<<: *a, id: q, answer: 007}\n  - {<<: *b, id: " +
			"r, answer: 1}\n", "q\nbad tasks.yaml:4:10: task \"r\": no anchor &b before this alias"},
		"a bomb": {"x-a: &a [a,a,a,a,a,a,a,a,a,a]\nx-b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nx-c: &c " +
			"[*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nx-d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\nx-e: &e " +
			"[*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nx-f: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\ntasks:\n  - {id: a, " +
			"instruction: x, tags: [*f]}\n",
			"fatal tasks.yaml:1:12: x-f[7][4][6][8][1][1]: the file grows beyond 1048576 values"},
		"not UTF-8": {"- {id: a, instruction: \xff, answer: 1}",
			"fatal tasks.yaml:1:24: this is not UTF-8; convert the file, for example by: iconv -f latin1 -t utf8"},
		"a list of defaults": {"defaults: {limits: {cpus: 1, pids: 9}, network: public}\ntasks: [{id: a, " +
			"instruction: x, answer: [1.10, yes, 0x10], limits: {pids: 5}}]\n", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := read(t, load(t, "tasks.yaml", c.text)); got != c.want {
				t.Errorf("have\n%s\nwant\n%s", got, c.want)
			}
		})
	}
	for name, c := range map[string]struct{ text, want string }{
		"lines": {`{"id":"a","instruction":"x","answer":42}` + "\n" + `{"id":"b","instruction":"x"}`,
			"a\nbad tasks.jsonl:2: task \"b\": it is graded in 0 ways; want one of grade.script, " +
				"grade.function and answer"},
		"unknown key": {`{"id":"a","instruction":"x","anwser":42}`,
			`bad tasks.jsonl:1: task "a": anwser: unknown key; did you mean "answer"?`},
		"broken":  {"{", "bad tasks.jsonl:1: not JSON: unexpected end of JSON input"},
		"objects": {`{"id":"a","instruction":"x","grade":{"script":"true","files":{"a":"text","b":{"text":"t","mode":"0755"}},"timeout":5},"limits":{"memory":"1GiB"},"oracle":"true","network":["a.example"]}`, "a"},
		"inner key": {`{"id":"a","instruction":"x","answer":1,"oracle":{"scrip":"true"}}`,
			`bad tasks.jsonl:1: task "a": oracle.scrip: unknown key; did you mean "script"?`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := read(t, load(t, "tasks.jsonl", c.text)); got != c.want {
				t.Errorf("have\n%s\nwant\n%s", got, c.want)
			}
		})
	}
	if _, err := tasks.New(filepath.Join(t.TempDir(), "no"), nil); err == nil ||
		!strings.Contains(err.Error(), "no such file or folder") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := tasks.New(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "has no tasks.yaml") {
		t.Errorf("an empty folder: %v", err)
	}
}

// Text stays as it is written; a link out of the folder is not followed; the digest is the
// content's.
func TestContent(t *testing.T) {
	const text = "- {id: 007, instruction: x, answer: 1.10, tags: [t], files: {f: {from: data}}}\n"
	b := load(t, "tasks.yaml", text, "data/a", "1")
	list, errs := read(t, b)
	if errs != "007" {
		t.Fatal(errs)
	}
	if o, err := b.Solve(list[0]); err != nil {
		t.Error(err)
	} else if ans, _ := o.Run(t.Context(),
		&agent.Session{Goal: agent.Goal{Parts: event.Text("x")}}); ans.Text() != "1.10" {
		t.Errorf("the answer is %q", ans.Text())
	}
	same, _ := read(t, load(t, "tasks.yaml", strings.Replace(text, "[t]", "[u, v]", 1), "data/a", "1"))
	other, _ := read(t, load(t, "tasks.yaml", text, "data/a", "2"))
	if same[0].Digest != list[0].Digest || other[0].Digest == list[0].Digest {
		t.Errorf("digests %s, %s with other tags, %s with another file", list[0].Digest, same[0].Digest,
			other[0].Digest)
	}
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "tasks.yaml"),
		[]byte("- {id: a, instruction: x, answer: 1, files: {p: {from: out/passwd}}}\n"), 0o600)
	os.Symlink("/etc", filepath.Join(dir, "out"))
	evil, err := tasks.New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, errs := read(t, evil); !strings.Contains(errs, "escapes") {
		t.Errorf("a link out of the folder: %s", errs)
	}
}

// play plays the first task with an agent that runs a script in its machine.
func play(t *testing.T, d sandbox.Driver, text, script, answer string) (float64, benchmarks.Result, error) {
	t.Helper()
	b := load(t, "tasks.yaml", text)
	list, errs := read(t, b)
	if len(list) == 0 {
		t.Fatal(errs)
	}
	p, err := benchtest.Play(t.Context(),
		benchtest.Session{Benchmark: b, Driver: d, Task: list[0],
			Agent: agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				if script != "" {
					m, _ := agent.As[agent.Machine](s.Env)
					if _, err := m.Exec(ctx,
						sandbox.Command{Args: []string{"bash", "-c", script}, Dir: m.Dir()}); err != nil {
						return agent.Answer{}, err
					}
				}
				return agent.Answer{Parts: event.Text(answer)}, nil
			})})
	for _, s := range p.Strays {
		t.Error(s)
	}
	if err != nil {
		return 0, benchmarks.Result{}, err
	}
	score, err := p.Score(b)
	return score, p.Results[len(p.Results)-1], err
}

// Whatever a grader does, it is a score; no reward from a machine that answers is 0 with a flag.
func TestRewards(t *testing.T) {
	d := benchtest.Local(t)
	for name, c := range map[string]struct {
		grade string
		want  float64
		flag  bool
		why   string
	}{
		"status 0":        {`{script: "true"}`, 1, false, ""},
		"status 3":        {`{script: "echo because; exit 3"}`, 0, false, "status 3: because"},
		"killed":          {`{script: "kill -9 $$"}`, 0, true, "was ended by SIGKILL"},
		"hangs":           {`{script: "sleep 1000 & sleep 1000", timeout: 1s}`, 0, true, "ran longer than 1s"},
		"no command":      {`{script: "no-such-command"}`, 0, true, "command was not found"},
		"1 GB of output":  {`{script: "head -c 1000000000 /dev/zero; exit 1"}`, 0, false, "status 1"},
		"partial":         {`{script: "echo 0.25 > $REWARD", partial: true}`, 0.25, false, ""},
		"partial, status": {`{script: "echo 1 > $REWARD; exit 1", partial: true}`, 1, false, ""},
		"writes none":     {`{script: "true", partial: true}`, 0, true, "no reward was written"},
		"writes NaN": {`{script: "echo NaN > $REWARD", partial: true}`, 0, true,
			`the reward "NaN" is not one number`},
		"writes two": {`{script: "echo 1 > $REWARD; echo 0 >> $REWARD", partial: true}`, 0, true,
			`is not one number`},
		"writes too much": {`{script: "echo 7 > $REWARD", partial: true}`, 0, true,
			`the reward "7" is not one number from 0 to 1`},
		"writes garbage": {`{script: "head -c 100 /dev/urandom > $REWARD", partial: true}`, 0, true,
			"is not one number"},
		"writes a GB": {`{script: "head -c 30000000 /dev/zero > $REWARD", partial: true}`, 0, true,
			"not a small file"},
		"writes a link":    {`{script: "ln -s /etc/passwd $REWARD", partial: true}`, 0, true, "not a small file"},
		"no partial":       {`{script: "echo 1 > ${REWARD:-/tmp/x}; exit 1"}`, 0, false, "status 1"},
		"python":           {`{script: "#!/usr/bin/env python3\nassert open(EVAL + '/h').read() == 'hidden' and open(ANSWER).read() == 'mine'", files: {h: hidden}}`, 1, false, ""},
		"python fails":     {`{script: "#!/usr/bin/python3\n\nassert False, 'third line'"}`, 0, false, "third line"},
		"not in env":       {`{script: "env | grep -q eval- && exit 1; exit 0", partial: false}`, 1, false, ""},
		"collects nothing": {`{script: "[ -z \"$(ls -A)\" ]", collect: [other]}`, 1, false, ""},
		"an empty list":    {`{script: "[ -z \"$(ls -A)\" ]", collect: []}`, 1, false, ""},
		"nothing of agent": {`{script: "[ ! -e /tmp/mark ] && [ -e mine ] && ! pgrep sleep"}`, 1, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, r, err := play(t, d, "- {id: a, instruction: x, grade: "+c.grade+"}\n",
				"touch /tmp/mark mine; (setsid sleep 1000 &) ; true", "mine")
			if err != nil {
				t.Fatal(err)
			}
			if flagged := fmt.Sprint(r.Flags) == "[no_reward]"; got != c.want || flagged != c.flag ||
				!strings.Contains(r.Primary().Why, c.why) {
				t.Errorf("%v, flags %v, %q; want %v, %v, %q", got, r.Flags, r.Primary().Why, c.want, c.flag, c.why)
			}
			if len(r.Primary().Why) > 4<<10 {
				t.Errorf("%d bytes of why", len(r.Primary().Why))
			}
		})
	}
}

// What an agent does to cheat, or leaves behind, earns nothing and breaks nothing.
func TestHostileAgents(t *testing.T) {
	d := benchtest.Local(t)
	const grade = `
- id: a
  instruction: x
  files: {given: "1"}
  grade:
    script: |
      [ "$(cat given)" = 2 ] && [ "$(cat out/deep/file)" = ok ]
      code=$?
      [ ! -e /eval ] || exit 9
      exit $code
`
	for name, c := range map[string]struct {
		script string
		want   float64
		flags  string
	}{
		"does it":      {"echo 2 > given; mkdir -p out/deep; echo ok > out/deep/file", 1, "[]"},
		"does nothing": {"", 0, "[]"},
		"writes rewards": {"mkdir -p /eval /logs; echo 1 > /eval/reward; echo 1 > /logs/reward; echo 1 > reward",
			0, "[]"},
		"removes all": {"rm -rf /workspace /workspace/* 2> /dev/null; true", 0, "[]"},
		"a link for a folder": {"cd /; rm -rf /workspace/* ; echo 2 > /workspace/given; mkdir /tmp/o; mkdir " +
			"/tmp/o/deep; echo ok > /tmp/o/deep/file; ln -s /tmp/o /workspace/out", 0, "[]"},
		"devices and pipes": {"echo 2 > given; mkdir -p out/deep; echo ok > out/deep/file; mkfifo pipe; ln -s / " +
			"root; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'", 1, "[]"},
		"odd names": {"echo 2 > given; mkdir -p out/deep; echo ok > out/deep/file; touch $'a\\nb' $'\\xff' " +
			"'-rf' '...'", 1, "[]"},
		"too many files": {"echo 2 > given; mkdir -p out/deep; echo ok > out/deep/file; seq 20000 | xargs touch",
			0, "[no_reward]"},
		"too much":      {"head -c 100000000 /dev/zero > big", 0, "[no_reward]"},
		"a sparse file": {"truncate -s 100G big", 0, "[no_reward]"},
		"shadows commands": {"mkdir -p ~/bin; for c in cat test; do printf '#!/bin/sh\\necho 2' > $c; chmod +x " +
			"$c; done; echo 'exit 0' > ~/.bashrc; echo 'exit 0' > .bashrc", 0, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, r, err := play(t, d, grade, c.script, "")
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want || fmt.Sprint(r.Flags) != c.flags {
				t.Errorf("%v, flags %v, %q; want %v, %s", got, r.Flags, r.Primary().Why, c.want, c.flags)
			}
		})
	}
}

// A link to what the grader itself reads would be right whatever is right. Links among the agent's
// files stay.
func TestLinks(t *testing.T) {
	d := benchtest.Local(t)
	for name, c := range map[string]struct {
		grade, script string
		want          float64
	}{
		"its input":          {`printf 'a\nb\n' | cmp - out`, "ln -s /dev/stdin out", 0},
		"its input, by proc": {`printf 'a\nb\n' | cmp - out`, "ln -s ../proc/self/fd/0 out", 0},
		"its open file":      {`echo a > $EVAL/a; cmp $EVAL/a out`, "ln -s /proc/self/fd/3 out", 0},
		"its command line":   {`grep -q 'is 42' out`, "ln -s /proc/self/cmdline out", 0},
		"by way of a link": {`grep -q 'is 42' out`, "mkdir d; ln -s .. d/up; ln -s d/up/../proc/self/cmdline out",
			0},
		"by way of a folder":  {`grep -q 'is 42' out`, "ln -s / root; ln -s root/proc/self/cmdline out", 0},
		"a folder for itself": {`grep -q 'is 42' self/cmdline`, "ln -s /proc/self self", 0},
		"one's own file": {`[ "$(cat out)" = 42 ]`,
			"mkdir d; echo 42 > d/a; ln -s d/a b; mkdir e; ln -s ../b e/c; ln -s /workspace/e/c out", 1},
		"a program": {`[ "$(./p -c 'print(42)')" = 42 ]`, "ln -s /usr/bin/python3 p", 1},
	} {
		t.Run(name, func(t *testing.T) {
			spec := fmt.Sprintf("\n- id: a\n  instruction: x\n  grade: {script: %q}\n", c.grade)
			got, r, err := play(t, d, spec, c.script, "")
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("%v, %q; want %v", got, r.Primary().Why, c.want)
			}
		})
	}
}

// A shared grader finds the service that was left, and none where it was not.
func TestShared(t *testing.T) {
	d := benchtest.Local(t)
	const grade = `
- id: a
  instruction: leave a process named keep
  leave: true
  grade: {shared: true, script: "#!/usr/bin/env python3\nimport glob\nassert any(b'keep' in open(p, 'rb').read() for p in glob.glob('/proc/[0-9]*/cmdline') if 'self' not in p and b'glob' not in open(p, 'rb').read())"}
`
	if got, r, err := play(t, d, grade, "setsid python3 -c 'import time; time.sleep(1000)' keep > /dev/null 2>&1 < "+
		"/dev/null & sleep 0.2", ""); err != nil || got != 1 {
		t.Errorf("with a service: %v, %+v, %v", got, r, err)
	}
	if got, _, err := play(t, d, grade, "", ""); err != nil || got != 0 {
		t.Errorf("without: %v, %v", got, err)
	}
	if got, _, err := play(t, d, strings.ReplaceAll(grade, "leave: true", "leave: false"),
		"setsid sleep 1000 keep & true", ""); err != nil || got != 0 {
		t.Errorf("killed before grading: %v, %v", got, err)
	}
}

// A task whose own set-up fails is the task's fault; a later stage's may be the agent's, and is a
// score.
func TestSetup(t *testing.T) {
	d := benchtest.Local(t)
	_, _, err := play(t, d, "- {id: a, instruction: x, setup: 'echo broken; exit 3', answer: 1}\n", "", "1")
	if !errors.As(err, new(*benchmarks.TaskError)) ||
		!strings.Contains(err.Error(), "the setup script left with status 3: broken") {
		t.Errorf("a setup that fails: %v", err)
	}
	const two = "- {id: a, stages: [{instruction: x, answer: 1}, {instruction: y, setup: 'cat given', answer: 1, files: {given: z}}]}\n"
	if got, _, err := play(t, d, two, "", "1"); err != nil || got != 1 {
		t.Errorf("two stages: %v, %v", got, err)
	}
	if got, r, err := play(t, d, strings.ReplaceAll(two, "cat given", "cat mine"), "", "1"); err != nil || got != 0.5 ||
		fmt.Sprint(r.Flags) != "[no_reward]" {
		t.Errorf("a later stage's setup that fails: %v, %+v, %v", got, r, err)
	}
}

// The answer counts as code where no file was written, and the file where one was.
func TestFunction(t *testing.T) {
	d := benchtest.Local(t)
	const grade = "- {id: a, instruction: x, grade: {function: {name: f, check: \"def check(f):\\n    assert f(1) == 2\"}}}\n"
	const good = "def f(x):\n    return x + 1\n"
	for name, c := range map[string]struct {
		script, answer string
		want           float64
	}{
		"answer":        {"", "```python\n" + good + "```", 1},
		"file":          {"printf 'def f(x): return 2' > solution.py", "done", 1},
		"file first":    {"printf 'def f(x): return 3' > solution.py", good, 0},
		"a link":        {"ln -s /etc/passwd solution.py", good, 1},
		"neither":       {"true", "", 0},
		"leaves with 0": {"", "import os\nos._exit(0)\ndef f(x): return 2", 0},
	} {
		if got, r, err := play(t, d, grade, c.script, c.answer); err != nil || got != c.want {
			t.Errorf("%s: %v, %+v, %v", name, got, r, err)
		}
	}
	if _, _, err := play(t, d, strings.ReplaceAll(grade, "assert", "assert ("), "", good); !errors.As(err,
		new(*benchmarks.TaskError)) {
		t.Errorf("a check that is broken: %v", err)
	}
}
