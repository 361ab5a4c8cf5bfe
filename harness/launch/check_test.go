package launch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/harbor"
	"github.com/evalrun/evalrun/benchmarks/tasks"
	"github.com/evalrun/evalrun/benchmarks/terminalbench"
	"github.com/evalrun/evalrun/harness/registry"

	"github.com/evalrun/evalrun/harness/record"
)

func TestJudge(t *testing.T) {
	num := func(x float64) *float64 { return &x }
	oracle, nop := record.Arm{Name: "oracle", Agent: "oracle"}, record.Arm{Name: "nop", Agent: "nop"}
	scored := func(x float64, flags ...string) *judged {
		return &judged{Verdict: record.Verdict{Status: record.Scored, End: record.Answered, Reward: num(x),
			Flags: flags, Scores: []record.Score{{Primary: true, Value: num(x)}}}}
	}
	fault := func(s record.Status, phase, class, text string) *judged {
		return &judged{Verdict: record.Verdict{Status: s,
			Error: &record.Fault{Status: s, Phase: phase, Class: class, Text: text}}}
	}
	slow := scored(0)
	slow.End, slow.Limit = record.Limit, "time"
	why := scored(0, "no_reward")
	why.Scores[0].Why = "VerifierTimeoutError: too long"
	failed := scored(0.5)
	failed.tests, failed.failed = 2, []string{"test_b"}
	for _, c := range []struct {
		arm        record.Arm
		verdicts   []*judged
		kind, what string
	}{
		{oracle, []*judged{scored(1), scored(1)}, "", ""},
		{nop, []*judged{scored(0), scored(-1)}, CheckFlaky, "0, then -1"},
		{nop, []*judged{scored(0)}, "", ""},
		{nop, []*judged{scored(0.1)}, CheckNop, "earns 0.1"},
		{nop, []*judged{scored(1)}, CheckNop, "full score"},
		{oracle, []*judged{failed}, CheckOracle, "1 of 2 tests not passed: test_b"},
		{oracle, []*judged{scored(1), scored(0)}, CheckFlaky, "oracle scores 1, then 0"},
		{oracle, []*judged{scored(0, "no_reward")}, CheckNoReward, "after the known solution"},
		{oracle, []*judged{why}, CheckTimeout, "of the grading"},
		{oracle, []*judged{slow}, CheckTimeout, "ran out of time"},
		{oracle, []*judged{nil}, CheckUndecided, "not decided"},
		{oracle, []*judged{fault(record.Skipped, "setup", "task", "x: no test script; add")}, CheckNoTest, "no test"},
		{oracle, []*judged{fault(record.Skipped, "setup", "task", "line 3")}, CheckUnreadable, "line 3"},
		{oracle, []*judged{fault(record.Skipped, "setup", "needs", "wants a GPU")}, CheckSkipped, "GPU"},
		{oracle, []*judged{fault(record.Skipped, "setup", "agent", "no solution/solve.sh")}, CheckNoSolution,
			"solve.sh"},
		{oracle, []*judged{fault(record.Infra, "image", "image", "building x: exit 1")}, CheckBuild, "exit 1"},
		{oracle, []*judged{fault(record.Infra, "image", "image", "pulling x: denied")}, CheckImage, "denied"},
		{oracle, []*judged{fault(record.Infra, "setup", "task", "setup.sh")}, CheckSetup, "setup.sh"},
		{oracle, []*judged{fault(record.Infra, "start", "timeout", "start took")}, CheckTimeout, "start"},
		{oracle, []*judged{fault(record.Grader, "grade", "internal", "odd")}, CheckGrader, "odd"},
		{oracle, []*judged{fault(record.Infra, "start", "sandbox", "gone")}, CheckMachine, "infra in start: gone"},
	} {
		x := checked{arm: c.arm, trials: []string{"a", "b"}, verdicts: c.verdicts}
		got := x.judge()
		switch {
		case got == nil && c.kind == "":
		case got == nil || got.Kind != c.kind || !strings.Contains(got.What, c.what) || got.Trial == "":
			t.Errorf("%s, %q: %+v", c.arm.Name, c.kind, got)
		}
	}
}

func TestRecognise(t *testing.T) {
	kinds := &registry.Registry{Benchmarks: []benchmarks.Kind{tasks.Kind, harbor.Kind, terminalbench.Kind}}
	dir := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("hb/one/task.toml", "")
	write("hb/one/environment/task.yaml", "") // a part of a task is none
	write("tb/New Tasks/deep/task.yaml", "")
	write("mixed/a/task.toml", "")
	write("mixed/b/task.yaml", "")
	write("mine/tasks.yaml", "tasks:\n  - {id: a}\n")
	write("set/dataset.toml", "")
	write("set/registry.json", "")
	write("run.yaml", "benchmark: quickstart\n")
	write("list.yml", "- {id: a, instruction: b}\n")
	write("empty/a/b/c/d/task.toml", "")
	for name, want := range map[string]string{
		"hb": "harbor", "hb/one": "harbor", "hb/one/task.toml": "harbor", "tb": "terminalbench",
		"mixed": "harbor terminalbench", "mine": "tasks",
		"mine/tasks.yaml": "tasks", "set": "harbor", "set/registry.json": "harbor", "list.yml": "tasks", "run.yaml": "",
		"empty": "",
	} {
		path := filepath.Join(dir, name)
		got, err := Recognise(kinds, path)
		var exp []string
		for k := range strings.FieldsSeq(want) {
			exp = append(exp, k+":"+path)
		}
		if want == "" && !errors.Is(err, ErrNoTasks) || want != "" && err != nil || !slices.Equal(got, exp) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := Recognise(kinds, filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
