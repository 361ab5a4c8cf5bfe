package harbor_test

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/harbor/verify"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The tests of this file show fields of docs/harbor.md by playing a task that has them.

// checking is a task whose verifier runs a script and rewards what it says; other files are added.
func checking(more, test string, over map[string]string) folder {
	f := folder{"t/task.toml": toml(more),
		"t/tests/test.sh": "#!/bin/bash\nif " + test +
			"; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
		"t/solution/solve.sh": "#!/bin/bash\ntrue\n"}
	for name, text := range over {
		f["t/"+name] = text
	}
	return f
}

// wants plays a task on the local driver and wants its score.
func wants(t *testing.T, f folder, options string, a agent.Agent, want float64) *benchtest.Played {
	t.Helper()
	b := open(t, f, options)
	p := played(t, local(t), b, "", a)
	if got, err := p.Score(b); err != nil || got != want {
		t.Errorf("the score is %v, want %v (%v): %+v", got, want, err, p.Results)
	}
	return p
}

func TestFieldUsersAndDirs(t *testing.T) {
	f := checking("[agent]\nuser = 1234\n[verifier]\nuser = \"1235\"\n",
		`[ "$(cat /tmp/who)" = "1234 /app" -a "$(id -u) $PWD" = "1235 /app" ]`, nil)
	wants(t, f, "", bash(`echo $(id -u) $PWD > /tmp/who; chmod 644 /tmp/who`), 1)
}

// The agent's user, and the task's environment, are the same for commands, the persistent shell and
// the editor.
func TestFieldUserOfActions(t *testing.T) {
	f := checking("[agent]\nuser = 1234\n[environment.env]\nTASK = \"its $value\"\n",
		`[ "$(stat -c %u /tmp/of-run /tmp/of-shell /tmp/of-editor | uniq)" = 1234 -a "$(cat /tmp/of-run /tmp/of-shell | `+
			`uniq)" = 'its $value' ]`, nil)
	wants(t, f, "", agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
		for _, a := range []event.Body{event.Run{Command: `echo "$TASK" > /tmp/of-run`},
			event.Run{Command: `echo "$TASK" > /tmp/of-shell`, Session: true},
			event.Edit{Command: event.EditCreate, Path: "/tmp/of-editor", Text: "x"}} {
			if _, err := s.Env.Step(ctx, event.New(event.FromAgent, a)); err != nil {
				return agent.Answer{}, err
			}
		}
		o, err := s.Env.Step(ctx, event.New(event.FromAgent, event.Edit{Command: event.EditCreate, Path: "/etc/mine"}))
		if e, ok := o.Body.(event.Edited); err == nil && (!ok || !e.Error || !strings.Contains(e.Text, "permission denied")) {
			t.Errorf("a file in /etc: %+v", o.Body)
		}
		return agent.Answer{}, err
	}), 1)
}

func TestFieldUpload(t *testing.T) {
	wants(t, checking("", `[ "$(cat /app/data/x)" = given ]`, map[string]string{"environment/data/x": "given\n"}), "",
		bash("true"), 1)
}

func TestFieldGoal(t *testing.T) {
	f := folder{"t/task.toml": "[environment]\ndocker_image = \"i\"\nskills_dir = " +
		"\"/skills\"\n[[environment.mcp_servers]]\nname = \"m\"\nurl = \"http://m:1/\"\nheaders = {H = " +
		"\"${NO:-default}\"}\n",
		"t/tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n", "t/instruction.md": "# canary\nDo it.\n"}
	var goal agent.Goal
	wants(t, f, "", agent.Func(func(_ context.Context, s *agent.Session) (agent.Answer, error) {
		goal = s.Goal
		return agent.Answer{}, nil
	}), 1)
	if !slices.Equal(goal.Skills, []string{"/skills"}) || goal.Text() != "Do it.\n" {
		t.Errorf("%+v", goal)
	}
	if d := cmp.Diff([]agent.MCPServer{{Name: "m", Transport: "sse", URL: "http://m:1/",
		Headers: map[string]string{"H": "default"}}}, goal.MCP); d != "" {
		t.Error(d)
	}
}

func TestFieldHealthchecks(t *testing.T) {
	f := checking("[environment.healthcheck]\ncommand = \"echo x >> /tmp/checks; [ $(wc -l < /tmp/checks) = 3 "+
		"]\"\ninterval_sec = 0.01\nstart_interval_sec = 0.01\nstart_period_sec = 20\n[[steps]]\nname = "+
		"\"one\"\n[steps.healthcheck]\ncommand = \"echo step > /tmp/step\"\n",
		`[ "$(wc -l < /tmp/seen)" = 4 ]`, map[string]string{"steps/one/instruction.md": "x"})
	wants(t, f, "", bash("cat /tmp/checks /tmp/step > /tmp/seen; chmod 644 /tmp/seen"), 1)
	b := open(t, checking("[environment.healthcheck]\ncommand = \"false\"\ninterval_sec = 0.01\nretries = 2\n", "true",
		nil), "")
	_, err := benchtest.Play(t.Context(),
		benchtest.Session{Benchmark: b, Driver: local(t), Task: task(t, b, ""), Agent: bash("true")})
	if err == nil || !strings.Contains(err.Error(), "healthy") {
		t.Errorf("a machine that never gets healthy: %v", err)
	}
}

// multi is a task of three steps that reward what the agent wrote into /app/N.
func multi(more string) folder {
	f := folder{"t/task.toml": toml(more)}
	for _, s := range []string{"a", "b", "c"} {
		f["t/steps/"+s+"/instruction.md"] = "Step " + s
	}
	f["t/tests/test.sh"] = "#!/bin/bash\ncp /app/grade /logs/verifier/reward.txt\n"
	f["t/steps/b/tests/test.sh"] = "#!/bin/bash\n[ -e /tests/shared ] && echo \"{\\\"reward\\\": $(cat /app/grade), \\\"style\\\": 3}\" > /logs/verifier/reward.json\n"
	f["t/tests/shared"] = "x"
	f["t/steps/a/workdir/data"] = "from the step"
	f["t/steps/a/workdir/setup.sh"] = "#!/bin/bash\ncp data copied\n"
	return f
}

func TestFieldMultiStep(t *testing.T) {
	steps := "[[steps]]\nname = \"a\"\n[[steps]]\nname = \"b\"\n[[steps]]\nname = \"c\"\n"
	p := wants(t, multi(steps), "", bash(`[ "$(cat copied)" = "from the step" ] && echo 1 > grade`, "echo 0.5 > grade",
		"echo 0 > grade"), 0.5)
	if len(p.Results) != 3 {
		t.Errorf("%d results", len(p.Results))
	}
	r, err := open(t, multi(steps), "").Reduce(task(t, open(t, multi(steps), ""), ""), p.Results)
	if err != nil || named(r, "style") != 1 {
		t.Errorf("a key that only one step has counts 0 in the others: %+v %v", r, err)
	}

	final := multi(steps)
	final["t/task.toml"] = "multi_step_reward_strategy = \"final\"\n" + final["t/task.toml"]
	wants(t, final, "", bash("echo 1 > grade", "echo 0.5 > grade", "echo 0.25 > grade"), 0.25)

}

func named(r benchmarks.Result, name string) float64 {
	for _, s := range r.Scores {
		if s.Name == name && s.Value != nil {
			return *s.Value
		}
	}
	return -1
}

func TestFieldMinReward(t *testing.T) {
	for _, c := range []struct {
		min, grade string
		played     int
	}{{"1", "1", 2}, {"1", "0.9", 1}, {"{reward = 0.5}", "0.5", 2}, {"{reward = 0.5, style = 1}", "1", 1},
		{"0", "no number", 1}} {
		p := played(t, local(t), open(t,
			multi("[[steps]]\nname = \"a\"\nmin_reward = "+c.min+"\n[[steps]]\nname = \"b\"\n"), ""), "",
			bash("echo "+c.grade+" > grade"))
		if len(p.Results) != c.played {
			t.Errorf("min_reward %s with %s: %d steps were played, want %d", c.min, c.grade, len(p.Results), c.played)
		}
	}
}

// What was in /tests and /logs/verifier is gone; scripts with Windows line ends or without the
// right to run are run.
func TestFieldShared(t *testing.T) {
	wants(t, checking("", `[ ! -e /tests/planted -a ! -e /logs/verifier/reward.json -a "$PWD" = /app ]`, nil), "",
		bash(`mkdir -p /tests /logs/verifier; echo x > /tests/planted; echo '{"reward": 1}' > /logs/verifier/reward.json`), 1)
	f := checking("", "true", nil)
	f["t/tests/test.sh"] = strings.ReplaceAll(f["t/tests/test.sh"], "\n", "\r\n")
	wants(t, f, "", bash("true"), 1)
}

func TestFieldRewards(t *testing.T) {
	b := open(t, folder{"t/tests/test.sh": "#!/bin/bash\ncp /app/reward.* /logs/verifier/\nexit 3\n"}, "")
	for _, c := range []struct {
		files string
		want  float64
		flag  string
	}{
		{"echo 1.0 > reward.txt", 1, ""},
		{"echo -2.5 > reward.txt", -2.5, ""},
		{`echo '{"reward": 0.25, "style": 7}' > reward.json; echo 1 > reward.txt`, 0.25, ""},
		{`echo '{"reward": "good", "n": [1]}' > reward.json; echo 0.5 > reward.txt`, 0.5, verify.FlagTolerant},
		{"true", 0, benchmarks.FlagNoReward},
		{": > reward.txt", 0, benchmarks.FlagNoReward},
		{"echo much > reward.txt", 0, benchmarks.FlagNoReward},
		{"echo { > reward.json", 0, benchmarks.FlagNoReward},
	} {
		p := played(t, local(t), b, "", bash(c.files))
		got, err := p.Score(b)
		if err != nil || got != c.want || c.flag != "" && !slices.Contains(p.Results[0].Flags, c.flag) ||
			c.flag == "" && len(p.Results[0].Flags) > 0 {
			t.Errorf("%s: %v %v %+v", c.files, got, err, p.Results[0])
		}
	}
	slow := folder{"t/task.toml": toml("[verifier]\ntimeout_sec = 0.2\n"),
		"t/tests/test.sh": "#!/bin/bash\nsleep 600\n"}
	p := wants(t, slow, "", bash("true"), 0)
	if !slices.Contains(p.Results[0].Flags, benchmarks.FlagNoReward) {
		t.Errorf("a time-out: %+v", p.Results[0])
	}
}

func TestFieldCTRF(t *testing.T) {
	f := folder{"t/tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n" +
		`echo '{"results": {"tests": [{"name": "one", "status": "passed"}, {"name": "two", "status": "failed"}]}}' > /logs/verifier/ctrf.json` + "\n"}
	r := wants(t, f, "", bash("true"), 1).Results[0]
	if len(r.Tests) != 2 || r.Tests[0].Name != "one" || r.Tests[1].Name != "two" ||
		r.Tests[0].Status == r.Tests[1].Status {
		t.Errorf("%+v", r.Tests)
	}
}

// A separate verifier sees the artifacts and nothing else of the agent's.
func TestFieldSeparate(t *testing.T) {
	f := folder{"t/task.toml": "artifacts = [\"/app/out.txt\"]\n" +
		toml("[verifier]\nenvironment_mode = \"separate\"\n[verifier.environment]\nworkdir = \"/app\"\nnetwork_mode "+
			"= \"no-network\"\n"),
		"t/tests/Dockerfile": "FROM " + image + "\nCOPY . /tests\n",
		"t/tests/test.sh": "#!/bin/bash\nif [ \"$(cat /app/out.txt)\" = right -a ! -e /app/other -a ! -e " +
			"/tmp/other ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"}
	p := wants(t, f, "", bash("echo right > out.txt; echo x > other; echo x > /tmp/other"), 1)
	if p.Machines != 2 {
		t.Errorf("%d machines", p.Machines)
	}
}

// A rewirer notes which policies are put in force.
type rewirer struct {
	sandbox.Driver
	mu       sync.Mutex
	policies []sandbox.Network
}

func (r *rewirer) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	r.mu.Lock()
	r.policies = append(r.policies, spec.Network)
	r.mu.Unlock()
	spec.Rewire = false
	sb, err := r.Driver.Create(ctx, spec)
	return &rewired{sb, r}, err
}

type rewired struct {
	sandbox.Sandbox
	r *rewirer
}

func (r *rewired) Unwrap() sandbox.Sandbox { return r.Sandbox }

func (r *rewired) Rewire(_ context.Context, n sandbox.Network) error {
	r.r.mu.Lock()
	defer r.r.mu.Unlock()
	r.r.policies = append(r.r.policies, n)
	return nil
}

// Each phase has its policy, in this order: start, agent, collecting, verifier.
func TestFieldPhases(t *testing.T) {
	f := checking("allowed_hosts = [\"base.org\"]\n[agent]\nnetwork_mode = \"public\"\n[verifier]\nnetwork_mode = "+
		"\"no-network\"\n", "true", nil)
	f["t/task.toml"] = strings.Replace(f["t/task.toml"], "no-network", "allowlist", 1)
	r := &rewirer{Driver: local(t).Driver}
	wantScore := 1.0
	b := open(t, f, "")
	if p := played(t, here{r, "local"}, b, "", bash("true")); len(p.Results) != 1 ||
		*p.Results[0].Primary().Value != wantScore {
		t.Errorf("%+v", p.Results)
	}
	var modes []string
	for _, n := range r.policies {
		modes = append(modes, strings.TrimSpace(n.Mode+" "+strings.Join(n.Allow, ",")))
	}
	modes = slices.Compact(modes)
	if want := []string{"allow base.org", "public", "allow base.org", "none"}; !slices.Equal(modes[:min(4, len(modes))],
		want) {
		t.Errorf("policies %q, want %q", modes, want)
	}
}

func TestFieldOracle(t *testing.T) {
	f := checking("[solution.env]\nA = \"given\"\nB = \"${NO:-default}\"\n",
		`[ "$(cat /app/seen)" = "given default noninteractive /app file" ]`,
		map[string]string{"solution/solve.sh": "#!/bin/bash\necho $A $B $DEBIAN_FRONTEND $PWD $(cat /solution/more) " +
			"> seen\nexit 7\n", "solution/more": "file"})
	b := open(t, f, "")
	a, err := b.Solve(task(t, b, ""))
	if err != nil {
		t.Fatal(err)
	}
	wants(t, f, "", a, 1)
}

func TestNoSolution(t *testing.T) {
	for _, c := range []struct {
		f    folder
		want string
	}{
		{folder{"t/task.toml": toml(""), "t/tests/test.sh": "true"}, "task t has no solution/solve.sh"},
		{multi("[[steps]]\nname = \"a\"\n"), `task t, step "a", has no solution/solve.sh`},
	} {
		b := open(t, c.f, "")
		if _, err := b.Solve(task(t, b, "")); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestFieldVerifierEnv(t *testing.T) {
	f := checking("[verifier.env]\nA = \"task\"\nB = \"task\"\nC = \"task\"\n[[steps]]\nname = "+
		"\"one\"\n[steps.verifier.env]\nB = \"step\"\nC = \"step\"\n", `[ "$A $B $C" = "task step run" ]`,
		map[string]string{"steps/one/instruction.md": "x"})
	wants(t, f, `{"verifier_env": {"C": "run"}}`, bash("true"), 1)
}

func TestFieldCollect(t *testing.T) {
	f := checking("[[verifier.collect]]\ncommand = \"echo hooked > /app/hooked; false\"\n", "true", nil)
	f["t/task.toml"] = "artifacts = [\"/app/hooked\", {source = \"/app/dir\", destination = \"kept\", exclude = " +
		"[\"*.log\"]}, \"/app/gone\"]\n" + f["t/task.toml"]
	p := wants(t, f, "", bash("mkdir -p dir /logs/artifacts; echo a > dir/a; echo b > dir/b.log; echo c > "+
		"/logs/artifacts/c"), 1)
	var list []verify.Artifact
	blob, ok := p.Evidence[0].Files["artifacts/manifest.json"]
	if !ok {
		t.Fatalf("no manifest: %v", p.Evidence[0].Files)
	}
	r, err := p.Log.OpenBlob(t.Context(), blob)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	raw, _ := io.ReadAll(r)
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, k := range list {
		got[k.Source] = k.Destination + " " + k.Type + " " + k.Status + " " + k.Service
	}
	want := map[string]string{"/app/hooked": "app/hooked file ok main", "/app/dir": "kept directory ok main",
		"/app/gone": "app/gone  failed main", "/logs/artifacts": "logs/artifacts directory ok main"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	kept, err := p.Log.OpenBlob(t.Context(), p.Evidence[0].Files["artifacts/kept"])
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	var names []string
	for f, err := range sandbox.Files(kept, sandbox.Limits{}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, f.Name)
	}
	if text := strings.Join(names, " "); !strings.Contains(text, "dir/a") || strings.Contains(text, "b.log") {
		t.Errorf("kept %q", names)
	}
}
