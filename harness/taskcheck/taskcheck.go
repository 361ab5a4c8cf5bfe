// Package taskcheck judges a run of the agents oracle and nop, as `evalrun tasks check` makes one:
// a task is sound when its known solution earns the full score, doing nothing earns none, and
// repeats agree. It reads statuses, classes and kinds of faults from the journal, never the wording
// of an error.
package taskcheck

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/ledger"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
)

// A Result says which tasks of a finished check are sound.
type Result struct {
	Run      string    `json:"run"`
	Tasks    int       `json:"tasks"`
	Times    int       `json:"times"` // how often each was played, by each of both
	Sound    int       `json:"sound"`
	Unsound  int       `json:"unsound"`
	Skipped  int       `json:"skipped"` // cannot run here, so nothing is known of them
	Oracle   int       `json:"oracle"`  // trials at full score
	Nop      int       `json:"nop"`
	Problems []Problem `json:"problems"`
	Notes    []Note    `json:"notes"`
	Work     []Work    `json:"work"`
}

// Work is a path that counts as the agent's work of a task, of those tasks whose verifier shares the
// agent's machine and that were played here.
type Work struct {
	Benchmark string `json:"benchmark"`
	Task      string `json:"task"`
	record.WorkPath
}

// A Note is something odd about tasks that can be played all the same, such as an unknown key.
type Note struct {
	Text  string   `json:"text"`
	Tasks []string `json:"tasks"`
}

// note adds a note about a task; the same note about several tasks is listed once.
func (r *Result) note(task, text string) {
	i := slices.IndexFunc(r.Notes, func(n Note) bool { return n.Text == text })
	if i < 0 {
		i, r.Notes = len(r.Notes), append(r.Notes, Note{Text: text})
	}
	r.Notes[i].Tasks = append(r.Notes[i].Tasks, task)
}

// Of names the tasks of a note: "a, b, c and 9 more".
func (n Note) Of() string { return some(n.Tasks) }

// Kinds of problems. All but [Skipped] make a task unsound.
const (
	Unreadable   = "cannot be read"
	NoTest       = "no test"
	NoSolution   = "no solution"
	NoImage      = "no image" // it can be neither built nor pulled
	BuildFails   = "build fails"
	SetupFails   = "set-up fails"
	OracleFails  = "oracle below 1"
	NopScores    = "nop above 0"
	NoReward     = "no reward"
	Timeout      = "time-out"
	Flaky        = "flaky"
	GraderFails  = "grader fails"
	PageFails    = "page fails"    // it cannot be loaded
	MachineFails = "machine fails" // of ours, as far as can be told
	Undecided    = "not decided"
	Skipped      = "skipped"
)

// A Problem is what is wrong with a task.
type Problem struct {
	Benchmark string `json:"benchmark"`
	Task      string `json:"task"`
	Kind      string `json:"kind"`
	What      string `json:"what"`
	Trial     string `json:"trial"` // an example
}

// Rewards from fullScore on count as 1, and up to noScore as 0, because graders add up fractions.
const (
	fullScore = 1 - 1e-9
	noScore   = 1e-9
)

// trials are those of one task and arm, a verdict each.
type trials struct {
	arm      record.Arm
	ids      []string
	verdicts []*verdict
}

// A verdict is a trial's, with the tests that it did not pass; nil: the trial is not decided.
type verdict struct {
	record.Verdict
	tests  int
	failed []string
	work   []record.WorkPath // of all stages
}

// Judge judges a finished run of the agents oracle and nop.
func Judge(d *rundir.Dir) (Result, error) {
	p := d.Plan()
	res := Result{Run: d.Path(), Tasks: len(p.Tasks), Times: p.Repeats, Problems: []Problem{},
		Notes: []Note{}, Work: []Work{}}
	verdicts, err := finalVerdicts(d)
	if err != nil {
		return res, err
	}
	for _, t := range p.Tasks {
		for _, text := range t.Warnings {
			res.note(t.ID, text)
		}
		var found []Problem
		var work []record.WorkPath
		for _, a := range p.Arms {
			c := trials{arm: a}
			for rep := 1; rep <= p.Repeats; rep++ {
				id := record.TrialID(a.ID, t.Digest, rep)
				c.ids, c.verdicts = append(c.ids, id), append(c.verdicts, verdicts[id])
				if v := verdicts[id]; v != nil && len(work) == 0 {
					work = v.work
				}
				if v := verdicts[id]; v != nil && v.Reward != nil && *v.Reward >= fullScore {
					if a.Agent == "oracle" {
						res.Oracle++
					} else {
						res.Nop++
					}
				}
			}
			if v := c.verdicts[0]; a.Agent == "oracle" && v != nil && v.Confirmation != nil {
				if text := confirmation(*v.Confirmation); text != "" {
					res.note(t.ID, text)
				}
			}
			if a.Agent != "oracle" && len(c.verdicts) > 0 && c.verdicts[0] != nil &&
				slices.Contains(c.verdicts[0].Flags, benchmarks.FlagThrew) {
				res.note(t.ID, "an expression fails on the page as it begins, which counts as false"+
					reasons(c.verdicts[0]))
			}
			if x := c.judge(); x != nil {
				x.Benchmark, x.Task = t.Benchmark, t.ID
				// A problem that keeps both arms from playing is listed once.
				if !slices.ContainsFunc(found,
					func(y Problem) bool {
						return x.Kind == y.Kind && x.Kind != Flaky &&
							x.Kind != NoReward
					}) {
					found = append(found, *x)
				}
			}
		}
		for _, w := range work {
			res.Work = append(res.Work, Work{t.Benchmark, t.ID, w})
		}
		switch {
		case len(found) == 0:
			res.Sound++
		case !slices.ContainsFunc(found, func(x Problem) bool { return x.Kind != Skipped }):
			res.Skipped++
		default:
			res.Unsound++
		}
		res.Problems = append(res.Problems, found...)
	}
	return res, nil
}

// confirmation says what to know about second opinions of a task; c is that of its known solution.
func confirmation(c record.Confirmation) string {
	switch {
	case c.State == record.Inapplicable:
		return "no grade of the task gets a second opinion, since the known solution gets none: " + c.Why
	case c.State == record.Confirmed && c.Why != "":
		return "the known solution is confirmed " + c.Why
	}
	return ""
}

// addWork adds the paths that were not named yet.
func (v *verdict) addWork(list []record.WorkPath) {
	for _, w := range list {
		if !slices.ContainsFunc(v.work, func(x record.WorkPath) bool { return x.Path == w.Path }) {
			v.work = append(v.work, w)
		}
	}
}

// finalVerdicts are those that decide the trials of a run.
func finalVerdicts(d *rundir.Dir) (map[string]*verdict, error) {
	type standing struct {
		ledger.Trial
		verdict
	}
	all := map[string]*standing{}
	for e, err := range journal.Control(d.Journal()) {
		if err != nil {
			return nil, err
		}
		t := all[e.Trial]
		if t == nil {
			t = &standing{}
			all[e.Trial] = t
		}
		l := ledger.Of(&e)
		switch t.Apply(&l) {
		case ledger.Began:
			t.verdict = verdict{}
		case ledger.Judged, ledger.Decided:
			if err := json.Unmarshal(e.Data, &t.Verdict); err != nil {
				return nil, fmt.Errorf("verdict of trial %s: %w", e.Trial, err)
			}
		case ledger.Amended:
			var a record.Amend
			if err := json.Unmarshal(e.Data, &a); err != nil {
				return nil, fmt.Errorf("amendment of trial %s: %w", e.Trial, err)
			}
			t.Confirmation = a.Confirmation
		}
		if e.Kind == record.KindEvidence {
			var ev struct {
				Work []record.WorkPath `json:"work"`
			}
			if json.Unmarshal(e.Data, &ev) == nil {
				t.addWork(ev.Work)
			}
			continue
		}
		var r record.Result
		if e.Kind != record.KindResult || json.Unmarshal(e.Data, &r) != nil {
			continue // the verdict is judged without its tests
		}
		t.tests += len(r.Tests)
		for _, x := range r.Tests {
			if x.Status != "passed" && x.Status != "skipped" {
				t.failed = append(t.failed, x.Name)
			}
		}
	}
	out := map[string]*verdict{}
	for id, t := range all {
		if t.Decided {
			out[id] = &t.verdict
		}
	}
	return out, nil
}

// judge says what is wrong with the task as the arm played it; nil: nothing.
func (c *trials) judge() *Problem {
	var first *Problem
	var grades []string
	for i, v := range c.verdicts {
		kind, what := c.one(v)
		if kind == "" || kind == OracleFails || kind == NopScores || kind == NoReward {
			grades = append(grades, score(v.Reward))
		}
		if kind != "" && first == nil {
			first = &Problem{Kind: kind, What: what, Trial: c.ids[i]}
		}
	}
	if slices.ContainsFunc(grades, func(g string) bool { return g != grades[0] }) {
		return &Problem{Kind: Flaky,
			What:  fmt.Sprintf("%s scores %s", c.arm.Name, strings.Join(grades, ", then ")),
			Trial: first.trialOr(c.ids[0])}
	}
	return first
}

func (x *Problem) trialOr(id string) string {
	if x == nil {
		return id
	}
	return x.Trial
}

// one judges one trial: what is wrong, and why.
func (c *trials) one(v *verdict) (kind, what string) {
	name := c.arm.Name
	switch {
	case v == nil:
		return Undecided, name + " was not decided"
	case v.Status != record.Scored:
		return c.notScored(v)
	}
	reached, oracle := v.Reward != nil && *v.Reward >= fullScore, c.arm.Agent == "oracle"
	why := reasons(v)
	switch {
	case oracle && reached, !oracle && (v.Reward == nil || *v.Reward <= noScore):
		return "", ""
	case !oracle:
		if reached {
			return NopScores, "doing nothing earns the full score"
		}
		return NopScores, "doing nothing earns " + score(v.Reward)
	case v.End == record.Limit && v.Limit == "time":
		return Timeout, "the known solution ran out of time" + why
	case isTimeout(v):
		return Timeout, "of the grading, after the known solution" + why
	case slices.Contains(v.Flags, benchmarks.FlagNoReward):
		return NoReward, "after the known solution" + why
	case v.End == record.Broke && v.Error != nil:
		return OracleFails, "the known solution broke: " + v.Error.Text
	}
	if v.Answer != "" { // of a script that failed, with its status
		why += "; its answer: " + v.Answer
	}
	return OracleFails, fmt.Sprintf("the oracle scores %s%s", score(v.Reward), why)
}

func (c *trials) notScored(v *verdict) (kind, what string) {
	f := v.Error
	if f == nil {
		return MachineFails, c.arm.Name + ": " + string(v.Status)
	}
	what = f.Text
	switch {
	case v.Status == record.Skipped && f.Class == "task":
		if f.Kind == record.FaultNoTest {
			return NoTest, what
		}
		return Unreadable, what
	case v.Status == record.Skipped && f.Class == "agent":
		if f.Kind == record.FaultNoSolution {
			return NoSolution, what
		}
		return Skipped, what
	case v.Status == record.Skipped:
		return Skipped, what
	case f.Class == "timeout":
		return Timeout, what
	case f.Phase == "image" && f.Kind == record.FaultBuild:
		return BuildFails, what
	case f.Phase == "image":
		return NoImage, what
	case f.Class == "task":
		return SetupFails, what
	case f.Kind == record.FaultPage:
		return PageFails, what
	case v.Status == record.Grader:
		return GraderFails, what
	}
	return MachineFails, fmt.Sprintf("%s: %s in %s: %s", c.arm.Name, v.Status, f.Phase, what)
}

// reasons are what the grader says about its primary score, else which tests were not passed.
func reasons(v *verdict) string {
	for _, s := range v.Scores {
		if s.Primary && s.Why != "" {
			return ": " + s.Why
		}
	}
	if len(v.failed) > 0 {
		tests := "tests"
		if v.tests == 1 {
			tests = "test"
		}
		return fmt.Sprintf(": %d of %d %s not passed: %s", len(v.failed), v.tests, tests, some(v.failed))
	}
	return ""
}

// isTimeout reports whether the grader gave no reward because its time was up.
func isTimeout(v *verdict) bool {
	return slices.ContainsFunc(v.Scores, func(s record.Score) bool { return s.Primary && s.TimedOut })
}

func score(x *float64) string {
	if x == nil {
		return "nothing"
	}
	return fmt.Sprintf("%g", *x)
}

// some names the first of many: "a, b, c and 9 more".
func some(names []string) string {
	const most = 3
	if len(names) <= most+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
