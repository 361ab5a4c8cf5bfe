package harbor_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/harbor"
	"github.com/evalrun/evalrun/datasets"
)

// testdata/broken holds ten tasks that are broken, each in one way; its README says how. Here is
// what playing them says.
func TestBroken(t *testing.T) {
	d := inDocker(t)
	b, err := harbor.New("testdata/broken", json.RawMessage(`{"exclude_task_names": ["none"]}`))
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for x, err := range b.Source().Tasks(t.Context()) {
		var bad *datasets.BadTask
		if errors.As(err, &bad) {
			said[bad.ID] = "bad: " + err.Error()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		said[x.ID] = check(t, d, b, x)
	}
	for name, want := range map[string]string{
		"sound":           "1 0 1",
		"no-test":         "bad: |no test script",
		"build-fails":     "error: |exit code: 3",
		"oracle-below-1":  "0 0 0",
		"nop-above-0":     "1 1 1",
		"no-reward":       "0 no_reward 0 no_reward 0 no_reward",
		"time-out":        "0 no_reward 0 no_reward 0 no_reward",
		"flaky":           "1.000",
		"bad-toml":        "bad: |task.toml:5",
		"refused-compose": "skip: |privileged|host's path",
		"hanging-health":  "error: |HealthcheckError: not healthy after 2 checks",
	} {
		for _, part := range strings.Split(want, "|") {
			if !strings.Contains(said[name], part) {
				t.Errorf("%s: %q, want %q in it", name, said[name], part)
			}
		}
	}
	if f := strings.Fields(said["flaky"]); len(f) != 3 || f[0] == f[2] || f[1] != "0" {
		t.Errorf("flaky: %q", said["flaky"])
	}
	if len(said) != 11 {
		t.Errorf("%d tasks: %q", len(said), said)
	}
}

// check is what the oracle, nop and the oracle again score.
func check(t *testing.T, d here, b *harbor.Benchmark, x datasets.Task) string {
	needs, err := b.Needs(x, benchmarks.Options{})
	if err != nil {
		return "error: " + err.Error()
	}
	if needs.Skip != "" {
		return "skip: " + needs.Skip
	}
	var scores []string
	for _, who := range []string{"oracle", "nop", "oracle"} {
		a := agent.Agent(agent.Func(func(context.Context, *agent.Session) (agent.Answer, error) {
			return agent.Answer{}, nil
		}))
		if who == "oracle" {
			if a, err = b.Solve(x); err != nil {
				return "error: " + err.Error()
			}
		}
		p, err := benchtest.Play(t.Context(), benchtest.Session{Benchmark: b, Driver: d, Task: x, Agent: a})
		if err != nil {
			return "error: " + err.Error()
		}
		scores = append(scores, say(p.Results[0]))
	}
	return strings.Join(scores, " ")
}
