package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/registry"
	"github.com/evalrun/evalrun/harness/rundir"
)

// Tasks gives the tasks that a configuration plans to each, without opening anything but its
// benchmarks, and without reading on once a limit is reached: for looking at tasks.
func Tasks(ctx context.Context, kinds *registry.Registry, eff *config.Effective, each func(record.Task) error) error {
	r := &Ready{Eff: eff, o: Options{Kinds: kinds}}
	for _, c := range eff.Benchmarks {
		b, err := OpenBenchmark(kinds, c)
		if err != nil {
			return err
		}
		r.benches = append(r.benches, harness.Bench{Benchmark: b})
	}
	spec, err := r.spec()
	if err != nil {
		return err
	}
	return plan.List(ctx, spec, each)
}

// A CheckResult says whether a benchmark's tasks are sound here.
type CheckResult struct {
	Run      string         `json:"run"`
	Tasks    int            `json:"tasks"`
	Times    int            `json:"times"` // how often each was played, by each of both
	Sound    int            `json:"sound"`
	Unsound  int            `json:"unsound"`
	Skipped  int            `json:"skipped"` // cannot run here, so nothing is known of them
	Oracle   int            `json:"oracle"`  // trials at full score
	Nop      int            `json:"nop"`
	Problems []CheckProblem `json:"problems"`
	Notes    []CheckNote    `json:"notes"`
}

// A CheckNote is what is odd about tasks that can be played all the same: a key that nobody knows,
// say.
type CheckNote struct {
	Text  string   `json:"text"`
	Tasks []string `json:"tasks"`
}

// note adds what is odd about a task; what many have in common is told once.
func (r *CheckResult) note(t record.Task) {
	for _, text := range t.Warnings {
		r.odd(t.ID, text)
	}
}

func (r *CheckResult) odd(task, text string) {
	i := slices.IndexFunc(r.Notes, func(n CheckNote) bool { return n.Text == text })
	if i < 0 {
		i, r.Notes = len(r.Notes), append(r.Notes, CheckNote{Text: text})
	}
	r.Notes[i].Tasks = append(r.Notes[i].Tasks, task)
}

// Of names the tasks of a note in few words.
func (n CheckNote) Of() string { return some(n.Tasks) }

// Kinds of problems. All but CheckSkipped make a task unsound.
const (
	CheckUnreadable = "cannot be read"
	CheckNoTest     = "no test"
	CheckNoSolution = "no solution"
	CheckImage      = "no image" // it can be neither built nor pulled
	CheckBuild      = "build fails"
	CheckSetup      = "set-up fails"
	CheckOracle     = "oracle below 1"
	CheckNop        = "nop above 0"
	CheckNoReward   = "no reward"
	CheckTimeout    = "time-out"
	CheckFlaky      = "flaky"
	CheckGrader     = "grader fails"
	CheckPage       = "page fails"    // it cannot be loaded
	CheckMachine    = "machine fails" // of ours, as far as can be told
	CheckUndecided  = "not decided"
	CheckSkipped    = "skipped"
)

// A CheckProblem is what is wrong with a task.
type CheckProblem struct {
	Benchmark string `json:"benchmark"`
	Task      string `json:"task"`
	Kind      string `json:"kind"`
	What      string `json:"what"`
	Trial     string `json:"trial"` // an example
}

// full is what counts as the full score, and as none; graders add up fractions.
const (
	full    = 1 - 1e-9
	nothing = 1e-9
)

// A checked is one task's trials of one arm.
type checked struct {
	arm      record.Arm
	trials   []string
	verdicts []*judged
}

// A judged is a trial's verdict, with the tests that it did not pass.
type judged struct {
	record.Verdict
	tests  int
	failed []string
}

// Check judges a finished run of oracle and nop.
func Check(d *rundir.Dir) (CheckResult, error) {
	p := d.Plan()
	res := CheckResult{Run: d.Path(), Tasks: len(p.Tasks), Times: p.Repeats, Problems: []CheckProblem{},
		Notes: []CheckNote{}}
	verdicts, err := finals(d)
	if err != nil {
		return res, err
	}
	for _, t := range p.Tasks {
		res.note(t)
		var found []CheckProblem
		for _, a := range p.Arms {
			c := checked{arm: a}
			for rep := 1; rep <= p.Repeats; rep++ {
				id := record.TrialID(a.ID, t.Digest, rep)
				c.trials, c.verdicts = append(c.trials, id), append(c.verdicts, verdicts[id])
				if v := verdicts[id]; v != nil && v.Reward != nil && *v.Reward >= full {
					if a.Agent == "oracle" {
						res.Oracle++
					} else {
						res.Nop++
					}
				}
			}
			if a.Agent != "oracle" && len(c.verdicts) > 0 && c.verdicts[0] != nil &&
				slices.Contains(c.verdicts[0].Flags, benchmarks.FlagThrew) {
				res.odd(t.ID, "an expression fails on the page as it begins, which counts as false"+
					reasons(c.verdicts[0]))
			}
			if x := c.judge(); x != nil {
				x.Benchmark, x.Task = t.Benchmark, t.ID
				// What keeps both from being played is told once.
				if !slices.ContainsFunc(found,
					func(y CheckProblem) bool {
						return x.Kind == y.Kind && x.Kind != CheckFlaky &&
							x.Kind != CheckNoReward
					}) {
					found = append(found, *x)
				}
			}
		}
		switch {
		case len(found) == 0:
			res.Sound++
		case !slices.ContainsFunc(found, func(x CheckProblem) bool { return x.Kind != CheckSkipped }):
			res.Skipped++
		default:
			res.Unsound++
		}
		res.Problems = append(res.Problems, found...)
	}
	return res, nil
}

// finals are the deciding verdicts of a run, by trial.
func finals(d *rundir.Dir) (map[string]*judged, error) {
	type standing struct {
		ledger.Trial
		judged
	}
	trials := map[string]*standing{}
	for e, err := range journal.Control(d.Journal()) {
		if err != nil {
			return nil, err
		}
		t := trials[e.Trial]
		if t == nil {
			t = &standing{}
			trials[e.Trial] = t
		}
		l := ledger.Of(&e)
		switch t.Apply(&l) {
		case ledger.Began:
			t.judged = judged{}
		case ledger.Judged, ledger.Decided:
			if err := json.Unmarshal(e.Data, &t.Verdict); err != nil {
				return nil, fmt.Errorf("verdict of trial %s: %w", e.Trial, err)
			}
		}
		var r record.Result
		if e.Kind != record.KindResult || json.Unmarshal(e.Data, &r) != nil {
			continue // the verdict will be judged without it
		}
		t.tests += len(r.Tests)
		for _, x := range r.Tests {
			if x.Status != "passed" && x.Status != "skipped" {
				t.failed = append(t.failed, x.Name)
			}
		}
	}
	out := map[string]*judged{}
	for id, t := range trials {
		if t.Decided {
			out[id] = &t.judged
		}
	}
	return out, nil
}

// judge says what is wrong with one task as one arm played it; nil: nothing.
func (c *checked) judge() *CheckProblem {
	var first *CheckProblem
	var grades []string
	for i, v := range c.verdicts {
		kind, what := c.one(v)
		if kind == "" || kind == CheckOracle || kind == CheckNop || kind == CheckNoReward {
			grades = append(grades, score(v.Reward))
		}
		if kind != "" && first == nil {
			first = &CheckProblem{Kind: kind, What: what, Trial: c.trials[i]}
		}
	}
	if slices.ContainsFunc(grades, func(g string) bool { return g != grades[0] }) {
		return &CheckProblem{Kind: CheckFlaky,
			What:  fmt.Sprintf("%s scores %s", c.arm.Name, strings.Join(grades, ", then ")),
			Trial: first.trialOr(c.trials[0])}
	}
	return first
}

func (x *CheckProblem) trialOr(id string) string {
	if x == nil {
		return id
	}
	return x.Trial
}

// one judges one trial: what is wrong, and why.
func (c *checked) one(v *judged) (kind, what string) {
	name := c.arm.Name
	switch {
	case v == nil:
		return CheckUndecided, name + " was not decided"
	case v.Status != record.Scored:
		return c.notScored(v)
	}
	reached, oracle := v.Reward != nil && *v.Reward >= full, c.arm.Agent == "oracle"
	why := reasons(v)
	switch {
	case oracle && reached, !oracle && (v.Reward == nil || *v.Reward <= nothing):
		return "", ""
	case !oracle:
		if reached {
			return CheckNop, "doing nothing earns the full score"
		}
		return CheckNop, "doing nothing earns " + score(v.Reward)
	case v.End == record.Limit && v.Limit == "time":
		return CheckTimeout, "the known solution ran out of time" + why
	case isTimeout(v):
		return CheckTimeout, "of the grading, after the known solution" + why
	case slices.Contains(v.Flags, benchmarks.FlagNoReward):
		return CheckNoReward, "after the known solution" + why
	case v.End == record.Broke && v.Error != nil:
		return CheckOracle, "the known solution broke: " + v.Error.Text
	}
	if v.Answer != "" { // of a script that failed, with its status
		why += "; its answer: " + v.Answer
	}
	return CheckOracle, fmt.Sprintf("the oracle scores %s%s", score(v.Reward), why)
}

func (c *checked) notScored(v *judged) (kind, what string) {
	f := v.Error
	if f == nil {
		return CheckMachine, c.arm.Name + ": " + string(v.Status)
	}
	what = f.Text
	switch {
	case v.Status == record.Skipped && f.Class == "task":
		if strings.Contains(what, "no test") {
			return CheckNoTest, what
		}
		return CheckUnreadable, what
	case v.Status == record.Skipped && f.Class == "agent":
		if strings.Contains(strings.ToLower(what), "solution") {
			return CheckNoSolution, what
		}
		return CheckSkipped, what
	case v.Status == record.Skipped:
		return CheckSkipped, what
	case f.Class == "timeout":
		return CheckTimeout, what
	case f.Phase == "image" && strings.Contains(what, "building"):
		return CheckBuild, what
	case f.Phase == "image":
		return CheckImage, what
	case f.Class == "task":
		return CheckSetup, what
	case f.Phase == "start" && strings.Contains(what, "net::ERR_"):
		return CheckPage, what
	case v.Status == record.Grader:
		return CheckGrader, what
	}
	return CheckMachine, fmt.Sprintf("%s: %s in %s: %s", c.arm.Name, v.Status, f.Phase, what)
}

// reasons are what the grader says about its primary score, else which tests were not passed.
func reasons(v *judged) string {
	for _, s := range v.Scores {
		if s.Primary && s.Why != "" {
			return ": " + s.Why
		}
	}
	if len(v.failed) > 0 {
		return fmt.Sprintf(": %d of %s not passed: %s", len(v.failed), count(v.tests, "test"), some(v.failed))
	}
	return ""
}

// isTimeout reports whether a grader that gave no reward says that its time was up.
func isTimeout(v *judged) bool {
	for _, f := range v.Flags {
		if strings.Contains(f, "timeout") {
			return true
		}
	}
	why := reasons(v)
	return slices.Contains(v.Flags, benchmarks.FlagNoReward) &&
		(strings.Contains(why, "Timeout") || strings.Contains(why, "timed out") || strings.Contains(why, "took longer"))
}

func score(x *float64) string {
	if x == nil {
		return "nothing"
	}
	return fmt.Sprintf("%g", *x)
}

// ErrNoTasks: nothing that lies at a path looks like tasks.
var ErrNoTasks = errors.New("no tasks are there: looked for task.toml (Harbor), task.yaml (Terminal-Bench), " +
	"dataset.toml, registry.json and tasks.yaml, here and two folders down")
