package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/cmd/evalrun/builtin"
	"github.com/evalrun/evalrun/harness/registry"
)

// An empty value is not ignored: a script that passes an unset variable would run without the limit.
func TestEmptyFlags(t *testing.T) {
	for _, args := range [][]string{
		{"run", "quickstart", "--dry-run", "--budget", ""}, {"run", "quickstart", "--dry-run", "--limit="},
		{"run", "quickstart", "--dry-run", "--ids", ""}, {"run", "quickstart", "--dry-run", "-m", ""},
		{"tasks", "list", "quickstart", "--tag", ""}, {"run", "quickstart", "--dry-run", "--out", ""},
	} {
		code, _, stderr := called(t, builtin.Kinds(), args...)
		if code != ExitUsage || !strings.Contains(stderr, "is empty") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

// What a kind of a third party does wrong is reported with its name, and is no usage error.
func TestBadKinds(t *testing.T) {
	for want, open := range map[string]func(benchmarks.Setup) (benchmarks.Benchmark, error){
		"benchmark zip: its Open returned neither": func(benchmarks.Setup) (benchmarks.Benchmark, error) {
			return nil, nil
		},
		"panic: zipped": func(benchmarks.Setup) (benchmarks.Benchmark, error) { panic("zipped") },
	} {
		kinds := builtin.Kinds()
		kinds.Benchmarks = append(kinds.Benchmarks, benchmarks.Kind{Name: "zip", Open: open})
		code, _, stderr := called(t, kinds, "tasks", "list", "zip")
		if code == ExitDone || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, %s; want %s", code, stderr, want)
		}
	}
	kinds := builtin.Kinds()
	kinds.Agents = append(kinds.Agents, agent.Kind{Name: "zip", Options: 5,
		Open: func(agent.Setup) (agent.Maker, error) { return nil, nil }})
	if code, _, stderr := called(t, kinds, "run", "--help"); code != ExitInternal ||
		stderr != "evalrun: registry: the options of the agent \"zip\": int is not a struct\n" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if code, _, stderr := called(t, nil, "run"); code != ExitInternal || !strings.Contains(stderr, "builtin.Kinds") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestUnknownTopic(t *testing.T) {
	for _, args := range [][]string{{"completion", "bsh"}, {"showw", "--help"}} {
		code, _, stderr := called(t, builtin.Kinds(), args...)
		if code != ExitUsage || !strings.Contains(stderr, "did you mean") {
			t.Errorf("%q: exit code %d, %s", args, code, stderr)
		}
	}
}

func called(t *testing.T, kinds *registry.Registry, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(System{Kinds: kinds, Args: args, Env: os.LookupEnv, Stdout: &out, Stderr: &errs, Version: "test"})
	return code, out.String(), errs.String()
}
