package taskcheck

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/harness/record"
)

func TestJudge(t *testing.T) {
	num := func(x float64) *float64 { return &x }
	oracle, nop := record.Arm{Name: "oracle", Agent: "oracle"}, record.Arm{Name: "nop", Agent: "nop"}
	scored := func(x float64, flags ...string) *verdict {
		return &verdict{Verdict: record.Verdict{Status: record.Scored, End: record.Answered, Reward: num(x),
			Flags: flags, Scores: []record.Score{{Primary: true, Value: num(x)}}}}
	}
	fault := func(s record.Status, phase, class, text string, kind ...string) *verdict {
		return &verdict{Verdict: record.Verdict{Status: s, Error: &record.Fault{Status: s, Phase: phase, Class: class,
			Kind: strings.Join(kind, ""), Text: text}}}
	}
	slow := scored(0)
	slow.End, slow.Limit = record.Limit, "time"
	why := scored(0, "no_reward")
	why.Scores[0].Why, why.Scores[0].TimedOut = "VerifierTimeoutError: too long", true
	failed := scored(0.5)
	failed.tests, failed.failed = 2, []string{"test_b"}
	for _, c := range []struct {
		arm        record.Arm
		verdicts   []*verdict
		kind, what string
	}{
		{oracle, []*verdict{scored(1), scored(1)}, "", ""},
		{nop, []*verdict{scored(0), scored(-1)}, Flaky, "0, then -1"},
		{nop, []*verdict{scored(0)}, "", ""},
		{nop, []*verdict{scored(0.1)}, NopScores, "earns 0.1"},
		{nop, []*verdict{scored(1)}, NopScores, "full score"},
		{oracle, []*verdict{failed}, OracleFails, "1 of 2 tests not passed: test_b"},
		{oracle, []*verdict{scored(1), scored(0)}, Flaky, "oracle scores 1, then 0"},
		{oracle, []*verdict{scored(0, "no_reward")}, NoReward, "after the known solution"},
		{oracle, []*verdict{why}, Timeout, "of the grading"},
		{oracle, []*verdict{slow}, Timeout, "ran out of time"},
		{oracle, []*verdict{nil}, Undecided, "not decided"},
		{oracle, []*verdict{fault(record.Skipped, "setup", "task", "x", record.FaultNoTest)}, NoTest, "x"},
		{oracle, []*verdict{fault(record.Skipped, "setup", "task", "line 3: no test script")}, Unreadable, "line 3"},
		{oracle, []*verdict{fault(record.Skipped, "setup", "needs", "wants a GPU")}, Skipped, "GPU"},
		{oracle, []*verdict{fault(record.Skipped, "setup", "agent", "none", record.FaultNoSolution)}, NoSolution,
			"none"},
		{oracle, []*verdict{fault(record.Skipped, "setup", "agent", "the solution needs a secret")}, Skipped, "secret"},
		{oracle, []*verdict{fault(record.Infra, "image", "image", "x: exit 1", record.FaultBuild)}, BuildFails,
			"exit 1"},
		{oracle, []*verdict{fault(record.Infra, "image", "image", "building stopped: denied")}, NoImage, "denied"},
		{oracle, []*verdict{fault(record.Infra, "setup", "task", "setup.sh")}, SetupFails, "setup.sh"},
		{oracle, []*verdict{fault(record.Infra, "start", "timeout", "start took")}, Timeout, "start"},
		{nop, []*verdict{fault(record.Infra, "start", "internal", "reset", record.FaultPage)}, PageFails, "reset"},
		{nop, []*verdict{fault(record.Infra, "start", "internal", "net::ERR_X")}, MachineFails, "net::ERR_X"},
		{oracle, []*verdict{fault(record.Grader, "grade", "internal", "odd")}, GraderFails, "odd"},
		{oracle, []*verdict{fault(record.Infra, "start", "sandbox", "gone")}, MachineFails, "infra in start: gone"},
	} {
		x := trials{arm: c.arm, ids: []string{"a", "b"}, verdicts: c.verdicts}
		got := x.judge()
		switch {
		case got == nil && c.kind == "":
		case got == nil || got.Kind != c.kind || !strings.Contains(got.What, c.what) || got.Trial == "":
			t.Errorf("%s, %q: %+v", c.arm.Name, c.kind, got)
		}
	}
}

func TestConfirmation(t *testing.T) {
	for _, c := range []struct {
		c    record.Confirmation
		want string
	}{
		{record.Confirmation{State: record.Confirmed}, ""},
		{record.Confirmation{State: record.Confirmed, Why: "with what it changed: /usr/bin/x"},
			"the known solution is confirmed with what it changed: /usr/bin/x"},
		{record.Confirmation{State: record.Inapplicable, Why: "0 instead of 1"},
			"no grade of the task gets a second opinion, since the known solution gets none: 0 instead of 1"},
	} {
		if got := confirmation(c.c); !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%+v: %q", c.c, got)
		}
	}
}
