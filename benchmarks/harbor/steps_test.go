package harbor_test

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/harbor"
	"github.com/evalrun/evalrun/benchmarks/harbor/verify"
)

// graded is a task whose test.sh is given.
func graded(name, test, more string) folder {
	return folder{name + "/task.toml": toml(more), name + "/tests/test.sh": test,
		name + "/solution/solve.sh": "#!/bin/bash\ntouch /app/done\n"}
}

// say is what a result says: "1", or "0 no_reward".
func say(r benchmarks.Result) string {
	return strings.TrimSpace(fmt.Sprint(*r.Primary().Value, " ",
		strings.Join(slices.Sorted(slices.Values(r.Flags)), ", ")))
}

func TestVerifier(t *testing.T) {
	const one = "echo 1 > /logs/verifier/reward.txt\n"
	for _, c := range []struct {
		name, test, more, options string
		agent                     string
		want, why                 string
	}{
		{name: "exit code", test: "#!/bin/bash\n" + one + "exit 7\n", want: "1"},
		{name: "no reward", test: "#!/bin/bash\necho hello\n", want: "0 no_reward",
			why: "RewardFileNotFoundError: the verifier wrote neither reward.json nor reward.txt in /logs/verifier; " +
				"test.sh left with status 0: hello"},
		{name: "empty", test: "#!/bin/bash\n: > /logs/verifier/reward.txt\n", want: "0 no_reward",
			why: "RewardFileEmptyError"},
		{name: "no number", test: "#!/bin/bash\necho good > /logs/verifier/reward.txt\n", want: "0 no_reward",
			why: "VerifierOutputParseError"},
		{name: "json over txt", test: "#!/bin/bash\n" + `echo '{"reward": 0.25}' > /logs/verifier/reward.json` + "\n" +
			one, want: "0.25"},
		{name: "time-out", test: "#!/bin/bash\n" + one + "setsid sleep 100 & sleep 100\n",
			more: "[verifier]\ntimeout_sec = 0.5\n", want: "0 no_reward",
			why: "VerifierTimeoutError: the verifier ran longer than 500ms"},
		{name: "time-out by a factor", test: "#!/bin/bash\nsleep 100\n", more: "[verifier]\ntimeout_sec = 50\n",
			options: `{"verifier_timeout_multiplier": 0.01}`, want: "0 no_reward", why: "longer than 500ms"},
		{name: "line ends", test: "#!/bin/bash\r\n" + strings.ReplaceAll(one, "\n", "\r\n"), want: "1"},
		{name: "no first line", test: "[[ a == a ]] && " + one, want: "1"},
		{name: "python", test: "#!/usr/bin/env python3\nopen('/logs/verifier/reward.txt', 'w').write('0.5')\n",
			want: "0.5"},
		{name: "where it runs", test: "#!/bin/bash\n[ \"$PWD\" = /app ] && " + one, want: "1"},
		{name: "variables", test: "#!/bin/bash\n[ \"$A-$B-$C\" = task-run-x ] && " + one,
			more:    "[verifier]\n[verifier.env]\nA = \"task\"\nB = \"task\"\nC = \"${NO_SUCH:-x}\"\n",
			options: `{"verifier_env": {"B": "run"}}`, want: "1"},
		{name: "a service", agent: "cd /app && (python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &) && " +
			"for i in $(seq 100); do (echo > /dev/tcp/127.0.0.1/8123) 2>/dev/null && break; sleep 0.05; done",
			test: "#!/bin/bash\n(echo > /dev/tcp/127.0.0.1/8123) && " + one, want: "1"},
		{name: "several", test: "#!/bin/bash\n" + `echo '{"a": 1, "b": 0}' > /logs/verifier/reward.json` + "\n",
			want: "0.5"},
		{name: "a link", test: "#!/bin/bash\n" + one +
			"mv /logs/verifier/reward.txt /app/r; ln -s /app/r /logs/verifier/reward.txt\n",
			want: "0 no_reward, reward_not_regular"},
		{name: "another user", test: "#!/bin/bash\n[ \"$(id -un)\" = nobody ] && " + one,
			more: "[verifier]\nuser = \"nobody\"\n", want: "1"},
		{name: "no user", test: "#!/bin/bash\n" + one, more: "[verifier]\nuser = \"nemo\"\n", want: "0 no_reward",
			why: "nemo"},
	} {
		drivers(t, func(t *testing.T, d here) {
			t.Run(c.name, func(t *testing.T) {
				b := open(t, graded("x", c.test, c.more), c.options)
				r := result(t, b, played(t, d, b, "", bash(c.agent)))
				if got := say(r); got != c.want || !strings.Contains(r.Primary().Why, c.why) {
					t.Errorf("%s: %s; want %s: %s", got, r.Primary().Why, c.want, c.why)
				}
			})
		})
	}
}

func steps() folder {
	test := func(want string) string {
		return "#!/bin/bash\n[ ! -e /tests/left ] && [ -e /tests/shared.txt ] && touch /tests/left && grep -qx " +
			want + " out.txt && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n"
	}
	return folder{
		"m/task.toml": toml(`
[[steps]]
name = "one"
min_reward = 1.0
[[steps]]
name = "two"
[steps.agent]
user = "nobody"
`) + "\n",
		"m/tests/shared.txt":         "x",
		"m/tests/test.sh":            test("first"),
		"m/solution/solve.sh":        "#!/bin/bash\necho first > out.txt; echo log > /logs/agent/log\n",
		"m/steps/one/instruction.md": "Write first.\n",
		"m/steps/two/instruction.md": "Write second.\n",
		"m/steps/two/workdir/setup.sh": "#!/bin/bash\r\nset -e\r\n[ \"$(id -un)\" = nobody ]\r\n[ ! -e " +
			"/logs/agent/log ]\r\necho set > /tmp/up\r\n",
		"m/steps/two/workdir/given.txt": "given",
		"m/steps/two/tests/test.sh":     test("second"),
		"m/steps/two/solution/solve.sh": "[ \"$(id -un)\" = nobody ] && [ \"$(cat given.txt)\" = given ] && [ -e " +
			"/tmp/up ] && echo second > /tmp/o && cp /tmp/o out.txt\n",
		"m/steps/two/solution/notes.txt": "",
	}
}

func TestSteps(t *testing.T) {
	drivers(t, func(t *testing.T, d here) {
		b := open(t, steps(), "")
		x := task(t, b, "")
		solver, err := b.Solve(x)
		if err != nil {
			t.Fatal(err)
		}
		p := played(t, d, b, "", agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
			// The second step's user may write what the first made.
			ans, err := solver.Run(ctx, s)
			if err == nil && strings.Contains(s.Goal.Text(), "first") {
				_, err = bash("chmod 777 out.txt").Run(ctx, s)
			}
			return ans, err
		}))
		if len(p.Results) != 2 {
			t.Fatalf("%d steps were graded", len(p.Results))
		}
		for i, r := range p.Results {
			if say(r) != "1" {
				t.Errorf("step %d: %s: %s", i+1, say(r), r.Primary().Why)
			}
		}
		nop := played(t, d, b, "", bash("true"))
		if len(nop.Results) != 1 || say(nop.Results[0]) != "0" {
			t.Errorf("below min_reward: %d steps, the first %s", len(nop.Results), say(nop.Results[0]))
		}
	})
}

// What shared verifiers graded is graded again in a fresh machine, from the work of all steps.
func TestRegradeSteps(t *testing.T) {
	drivers(t, func(t *testing.T, d here) {
		made := func(first, second string) *harbor.Benchmark {
			test := func(file, want string) string {
				return "#!/bin/bash\n[ \"$(cat /app/" + file + ")\" = " + want + " ] && r=1 || r=0\n" +
					"echo $r > /logs/verifier/reward.txt\n"
			}
			return open(t, folder{
				"m/task.toml": toml(`
[[steps]]
name = "one"
min_reward = 1.0
[[steps]]
name = "two"
`),
				"m/steps/one/instruction.md": "Write a to `/app/first`.\n",
				"m/steps/two/instruction.md": "Write b to `/app/second`.\n",
				"m/steps/one/tests/test.sh":  test("first", first),
				"m/steps/two/tests/test.sh":  test("second", second),
			}, "")
		}
		for _, c := range []struct {
			first, second   string // what the tests want first, and then a and b
			script          string // of the second step
			was, is, cannot string
		}{
			{"a", "x", "echo b > /app/second", "1 0", "1 from_work 1 from_work", ""},
			{"a", "x", "rm /app/first; echo c > /app/second", "1 0", "1 from_work 0 from_work", ""},
			{"a", "b", "echo b > /var/tmp/x; ln -s /var/tmp/x /app/second", "1 1", "1 from_work 0 from_work", ""},
			{"a", "b", "echo b > /logs/artifacts/x; ln -s /logs/artifacts/x /app/second", "1 1",
				"1 from_work 1 from_work", ""},
			{"x", "b", "", "0", "", "a step that the agent has not played"},
		} {
			p := played(t, d, made(c.first, c.second), "", bash("echo a > /app/first", c.script))
			if got := rewards(p.Results); got != c.was {
				t.Errorf("%s: %s first, want %s", c.script, got, c.was)
				continue
			}
			b := made("a", "b")
			got, err := p.Regrade(t.Context(), benchtest.Session{Benchmark: b, Driver: d.Driver, Task: task(t, b, "")})
			if c.cannot != "" {
				if !errors.Is(err, benchmarks.ErrNeedsLive) || !strings.Contains(err.Error(), c.cannot) {
					t.Errorf("%v, want %q", err, c.cannot)
				}
				continue
			}
			if rewards(got) != c.is || err != nil {
				t.Errorf("%s: %s again, %v; want %s", c.script, rewards(got), err, c.is)
			}
			for _, stray := range p.Strays {
				t.Error(stray)
			}
		}
	})
}

func rewards(results []benchmarks.Result) string {
	var out []string
	for _, r := range results {
		out = append(out, say(r))
	}
	return strings.Join(out, " ")
}

func TestBrokenSteps(t *testing.T) {
	d := local(t)
	f := steps()
	f["m/steps/two/workdir/setup.sh"] = "#!/bin/bash\necho no way; exit 3\n"
	b := open(t, f, "")
	p := played(t, d, b, "", bash("echo first > out.txt"))
	r := result(t, b, p)
	if got := say(r); got != "0.5 no_reward" ||
		!strings.Contains(p.Results[1].Primary().Why, "setup.sh of step two left with status 3: no way") {
		t.Errorf("%s; %s", got, p.Results[1].Primary().Why)
	}
	f["m/steps/one/workdir/setup.sh"] = "exit 1\n"
	b = open(t, f, "")
	_, err := benchtest.Play(t.Context(),
		benchtest.Session{Benchmark: b, Driver: d, Task: task(t, b, ""), Agent: bash("true")})
	if fault := (*benchmarks.TaskError)(nil); !errors.As(err, &fault) {
		t.Errorf("a first step that cannot be set up: %v", err)
	}
	f = hello("h", "[environment.healthcheck]\ncommand = \"false\"\ninterval_sec = 0.01\nretries = 2\n")
	b = open(t, f, "")
	_, err = benchtest.Play(t.Context(),
		benchtest.Session{Benchmark: b, Driver: d, Task: task(t, b, ""), Agent: bash("true")})
	if fault := (*benchmarks.TaskError)(nil); !errors.As(err, &fault) ||
		!strings.Contains(err.Error(), "HealthcheckError: not healthy after 2 checks") {
		t.Errorf("a health check that never succeeds: %v", err)
	}
}

// separate is a task with a verifier of its own.
func separate() folder {
	return folder{
		"s/task.toml": `artifacts = ["out", "/data/x.bin", {source = "/app/logs", destination = "kept/logs", exclude = ["*.tmp", "cache"]}, "/no/such"]
` + toml(`[verifier]
environment_mode = "separate"
[[verifier.collect]]
command = "echo collected > /app/out/hook.txt"
[[verifier.collect]]
command = "exit 9"
[verifier.environment]
network_mode = "no-network"
`),
		"s/solution/solve.sh": "#!/bin/bash\nmkdir -p out /data logs/cache; echo right > out/a.txt; head -c 3000000 " +
			"/dev/zero > /data/x.bin; touch logs/a logs/a.tmp logs/cache/b; ln -s a.txt out/link; ln -s /etc/passwd " +
			"out/bad; mkfifo out/pipe; touch $'out/\\xff\\n' $'out/a\\nb'; echo art > /logs/artifacts/z\n",
		"s/tests/Dockerfile": "FROM " + image + "\nCOPY . /tests/\nRUN chmod 644 /tests/test.sh\n",
		"s/tests/test.sh": `#!/bin/bash
{ [ "$(cat /app/out/link)" = right ] && [ "$(cat /app/out/hook.txt)" = collected ] && [ "$(stat -c %s /data/x.bin)" = 3000000 ] && [ -e /app/logs/a ] &&
[ ! -e /app/logs/a.tmp ] && [ ! -e /app/logs/cache ] && [ ! -L /app/out/bad ] && [ ! -e /app/out/pipe ] && [ -e $'/app/out/\xff\n' ] && [ -e $'/app/out/a\nb' ] && [ "$(cat /logs/artifacts/z)" = art ] &&
[ ! -e /solution ] && [ -z "$(ls -A /logs/verifier)" ]; } && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
`,
	}
}

func TestSeparate(t *testing.T) {
	drivers(t, func(t *testing.T, d here) {
		b := open(t, separate(), "")
		benchtest.Run(t, benchtest.Suite{Benchmark: b, Driver: d, Want: 1})
		solver, err := b.Solve(task(t, b, ""))
		if err != nil {
			t.Fatal(err)
		}
		p := played(t, d, b, "", solver)
		if got := say(p.Results[0]); got != "1" {
			t.Errorf("%s: %s", got, p.Results[0].Primary().Why)
		}
		ev := p.Evidence[0]
		want := []string{"artifacts/app/out", "artifacts/data/x.bin", "artifacts/kept/logs", "artifacts/logs/artifacts",
			"artifacts/manifest.json"}
		if got := slices.Sorted(maps.Keys(ev.Files)); !slices.Equal(got, want) {
			t.Errorf("kept: %q", got)
		}
		var list []verify.Artifact
		if err := json.Unmarshal(content(t, p, ev.Files["artifacts/manifest.json"]), &list); err != nil {
			t.Fatal(err)
		}
		status := map[string]string{}
		for _, k := range list {
			status[k.Source] = k.Status + " " + k.Type + " " + k.Service
		}
		for source, want := range map[string]string{"/app/out": "ok directory main", "/data/x.bin": "ok file main",
			"/no/such": "failed  main", "/app/logs": "ok directory main"} {
			if status[source] != want {
				t.Errorf("%s: %q, want %q", source, status[source], want)
			}
		}
		for h := range entries(content(t, p, ev.Files["artifacts/app/out"])) {
			if strings.Contains(h.Name, "pipe") || h.Uname != "" || h.Uid != 0 {
				t.Errorf("kept %q of %d", h.Name, h.Uid)
			}
		}
	})
}

func content(t *testing.T, p *benchtest.Played, blob event.Blob) []byte {
	t.Helper()
	r, err := p.Log.OpenBlob(t.Context(), blob)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func entries(b []byte) func(func(*tar.Header) bool) {
	return func(yield func(*tar.Header) bool) {
		for tr := tar.NewReader(strings.NewReader(string(b))); ; {
			h, err := tr.Next()
			if err != nil || !yield(h) {
				return
			}
		}
	}
}
