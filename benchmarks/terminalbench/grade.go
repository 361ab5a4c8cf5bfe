package terminalbench

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/harbor/verify"
	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// maxOutput is how much of what the tests print is looked at: the first half and the last.
const maxOutput = 16 << 20

// Names of the scores.
const (
	scoreResolved = "is_resolved" // primary: 1 when there are tests and all of them passed
	scoreFraction = "passed"      // the part of the tests that passed
)

// Grade puts the tests into the agent's machine, runs them there and reads what they print.
func (b *Benchmark) Grade(ctx context.Context, h benchmarks.Host, dt datasets.Task, ev benchmarks.Evidence,
	live benchmarks.Episode) (benchmarks.Result, error) {
	t, err := decodeTask(dt)
	if err != nil {
		return benchmarks.Result{}, err
	}
	g, ok := live.(*episode)
	if !ok || g == nil || g.Started() == nil {
		return benchmarks.Result{}, benchmarks.ErrNeedsLive
	}
	d, err := readEvidence(ev)
	if err != nil {
		return benchmarks.Result{}, err
	}
	x := &grading{h: h, task: t, sb: g.Started(), d: d, limit: b.o.testTime(t.TestTime)}
	inspection, refused, err := g.guard.Begin(ctx)
	if err != nil {
		return benchmarks.Result{}, err
	}
	res := verdict(0, nil, refused, benchmarks.FlagNoReward)
	if refused == "" {
		if res, err = x.run(ctx, inspection); err != nil {
			return res, err
		}
	}
	return inspection.Apply(res, tampering...), nil
}

type grading struct {
	h     benchmarks.Host
	task  *Task
	sb    sandbox.Sandbox
	d     evidence
	limit time.Duration // of all test scripts together
}

// run runs the tests, which the inspection has put into the machine.
func (x *grading) run(ctx context.Context, inspection *verify.Inspection) (benchmarks.Result, error) {
	out := &bytes.Buffer{}
	exit, err := x.scripts(ctx, inspection, out)
	if err != nil {
		return benchmarks.Result{}, err
	}
	if err := inspection.End(ctx); err != nil {
		return benchmarks.Result{}, err
	}
	res := x.judge(out.String())
	if exit.TimedOut {
		res = verdict(0, res.Tests, fmt.Sprintf("test_timeout: the tests ran longer than %v", x.limit),
			benchmarks.FlagNoReward, FlagTimeout)
		res.Primary().TimedOut = true
	}
	return res, inspection.Remark(ctx, x.h.Log(), "the tests ended with: "+ending(out.String()), exit, out.Bytes())
}

// scripts runs the test scripts, one after the other, as root or, for tasks that ask for the
// agent's shell, as the agent's user where the agent was. Shells of actions do not outlive them, so
// there is no more of a shell to share.
func (x *grading) scripts(ctx context.Context, i *verify.Inspection, out *bytes.Buffer) (exit sandbox.Exit, err error) {
	began := time.Now()
	for _, name := range x.task.TestScripts {
		c := sandbox.Command{
			Args: []string{"bash", "--noprofile", "--norc", testsDir + "/" + path.Base(name)}, User: "root",
			Env: map[string]string{"TERM": "xterm-256color"}, Stdout: out, Limit: maxOutput, FullLimit: -1,
			Timeout: max(x.limit-time.Since(began), time.Millisecond),
		}
		if x.task.SameShell {
			c.User, c.Dir = "", x.d.Where
		}
		if exit, err = i.Exec(ctx, c); err != nil || exit.TimedOut {
			break
		}
	}
	return exit, err
}

// judge reads the tests' output.
func (x *grading) judge(out string) benchmarks.Result {
	tests, flags, why, ok := parsers[x.task.Parser](out)
	if !ok {
		return verdict(0, nil, fmt.Sprintf("parse_error: %s; it ends: %s", why, ending(out)), benchmarks.FlagNoReward,
			FlagParse)
	}
	if x.task.Parser == "pytest" && len(headline.FindAllStringIndex(out, -1)) > 1+x.task.SummaryHeaders {
		flags = append(flags, FlagSummaries)
	}
	if len(tests) == 0 {
		return verdict(0, nil, "no test is named in the output; it ends: "+ending(out),
			append(flags, benchmarks.FlagNoReward, FlagNoTests)...)
	}
	if slices.ContainsFunc(tests, func(t record.Test) bool { return !passed(t) }) {
		return verdict(0, tests, failures(tests), flags...)
	}
	return verdict(1, tests, "", flags...)
}

// ending is the last part of an output, for a reason.
func ending(out string) string {
	out = strings.TrimSpace(score.Clean(ansi.ReplaceAllString(out, "")))
	if len(out) > 1000 {
		out = "…" + strings.ToValidUTF8(out[len(out)-1000:], "")
	}
	return out
}

func verdict(v float64, tests []record.Test, why string, flags ...string) benchmarks.Result {
	r := benchmarks.Result{
		Scores: []record.Score{{Name: scoreResolved, Primary: true, Value: &v,
			Why: score.Clip(score.Clean(why), 2500)}},
		Tests: tests, Flags: flags,
	}
	if len(tests) > 0 {
		n := 0
		for _, t := range tests {
			if passed(t) {
				n++
			}
		}
		f := float64(n) / float64(len(tests))
		r.Scores = append(r.Scores, record.Score{Name: scoreFraction, Value: &f})
	}
	return r
}
