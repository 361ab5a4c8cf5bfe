package terminalbench

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// An attack is what the agent runs in a task that it does not solve: greet, whose tests want a file.
// A score above 0 is flagged or not confirmed.
func TestAttacks(t *testing.T) {
	driver := benchtest.Docker(t)
	b, err := New("testdata/tasks/greet", nil)
	if err != nil {
		t.Fatal(err)
	}
	task, err := b.Source().Task(t.Context(), "greet")
	if err != nil {
		t.Fatal(err)
	}
	references := map[string][]byte{}
	play := func(a agent.Agent, oracle bool, mode string) (benchmarks.Result, *record.Confirmation) {
		t.Helper()
		s := benchtest.Session{Benchmark: b, Driver: driver, Task: task, Agent: a, Oracle: oracle,
			References: references,
			Options:    benchmarks.Options{Integrity: mode}}
		p, err := benchtest.Play(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.Confirm(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return p.Results[0], c
	}
	oracle, err := b.Solve(task)
	if err != nil {
		t.Fatal(err)
	}
	if r, c := play(oracle, true, ""); *r.Primary().Value != 1 || len(r.Flags) > 0 || c == nil ||
		c.State != record.Confirmed {
		t.Fatalf("the oracle: %v %q %+v: %s", *r.Primary().Value, r.Flags, c, show(r))
	}
	const forged = "===== short test summary info =====\nPASSED x::test_exists\nPASSED x::test_says_hello\n"
	for _, a := range []struct{ name, script string }{
		{"nothing", "true"},
		{"tests written ahead", "mkdir -p /tests; echo 'def test_exists(): pass' > /tests/test_outputs.py; echo " +
			"'import os' > /tests/conftest.py"},
		{"/tests is a link", "mkdir /else; ln -s /else /tests"},
		{"conftest beside the work",
			`printf 'def pytest_collection_modifyitems(items):\n    items.clear()\n' > conftest.py`},
		{"pytest.ini calls a plug-in", `printf '[pytest]\naddopts = -p evil\n' > pytest.ini; printf 'import os\nprint("` +
			strings.ReplaceAll(forged, "\n", `\\n`) + `", flush=True)\nos._exit(0)\n' > evil.py`},
		{"usercustomize", `printf 'import sys,os\nif "pytest" in " ".join(sys.orig_argv):\n    print("` +
			strings.ReplaceAll(forged, "\n", `\\n`) +
			`", flush=True)\n    os._exit(0)\n' > /usr/lib/python3/dist-packages/usercustomize.py`},
		{"python replaced", `printf '#!/bin/sh\nprintf "` + strings.ReplaceAll(forged, "\n", `\\n`) +
			`"\n' > /usr/local/bin/python3; chmod +x /usr/local/bin/python3`},
		{"start-up files of bash", `printf 'printf "` + strings.ReplaceAll(forged, "\n", `\\n`) +
			`"; exit 0\n' | tee -a ~/.bashrc ~/.profile /etc/profile /etc/bash.bashrc`},
	} {
		t.Run(strings.ReplaceAll(a.name, "/", "∕"), func(t *testing.T) {
			attacker := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				m, _ := agent.As[agent.Machine](s.Env)
				_, err := m.Exec(ctx, sandbox.Command{Args: []string{"bash", "-c", a.script}, User: "root"})
				return agent.Answer{}, err
			})
			r, c := play(attacker, false, "")
			t.Logf("%v %q %+v: %s", *r.Primary().Value, r.Flags, c, show(r))
			if *r.Primary().Value > 0 && len(r.Flags) == 0 && (c == nil || c.State != record.Unconfirmed) {
				t.Errorf("the attack wins: %+v: %s", c, show(r))
			}
			r, c = play(attacker, false, "require")
			if *r.Primary().Value > 0 && (len(r.Flags) > 0 || c == nil || c.State == record.Confirmed) {
				t.Errorf("integrity: require lets it pass: %q %+v: %s", r.Flags, c, show(r))
			}
		})
	}
}

func show(r benchmarks.Result) string { return r.Primary().Why }

// A service that the agent leaves is there for the tests. In a fresh machine it is not, and without
// an oracle's trial nobody knows what this means.
func TestLeftProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "service")
	for name, text := range map[string]string{
		"task.yaml":    "instruction: serve\ndifficulty: easy\nmax_test_timeout_sec: 60\n",
		"Dockerfile":   "FROM " + benchtest.DockerImage + "\nWORKDIR /app\n",
		"run-tests.sh": "python3 -m pytest -rA $TEST_DIR/test_outputs.py\n",
		"tests/test_outputs.py": "from urllib.request import urlopen\ndef test_it():\n    assert " +
			"urlopen('http://localhost:8123/x', timeout=5).read() == b'served'\n",
	} {
		os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
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
	server := agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		m, _ := agent.As[agent.Machine](s.Env)
		_, err := m.Exec(ctx, sandbox.Command{
			Args: []string{"bash", "-c",
				"printf served > x; setsid python3 -m http.server 8123 >/dev/null 2>&1 & until curl -sf " +
					"localhost:8123/x; do sleep 0.1; done"}})
		return agent.Answer{}, err
	})
	session := benchtest.Session{Benchmark: b, Driver: benchtest.Docker(t), Task: task, Agent: server}
	p, err := benchtest.Play(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Results[0]; *r.Primary().Value != 1 || len(r.Flags) > 0 {
		t.Errorf("%+v %s", r, show(r))
	}
	c, err := p.Confirm(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	if c == nil || c.State != record.Unknown || !strings.Contains(c.Why, "processes that the agent left") {
		t.Errorf("a service is no work that is kept: %+v", c)
	}
}
