package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/internal/suggest"
	"github.com/evalrun/evalrun/reports/text"
)

// A rerunPick selects decided trials to be played again. The zero value selects the trials that are
// not evidence because of a failure outside the agent.
type rerunPick struct {
	status, trials, tasks, arms []string
	flag                        string
}

// rerunStatuses are the possible statuses of a decided trial.
var rerunStatuses = slices.DeleteFunc(slices.Clone(text.TrialStatuses), func(s string) bool { return s == "pending" })

func (p *rerunPick) empty() bool {
	return p.flag == "" && len(p.status)+len(p.trials)+len(p.tasks)+len(p.arms) == 0
}

// check rejects statuses that no decided trial can have.
func (p *rerunPick) check() error {
	p.status = split(p.status)
	for _, s := range p.status {
		if !slices.Contains(rerunStatuses, s) {
			hint := "statuses: " + strings.Join(rerunStatuses, ", ")
			if meant := suggest.Names(s, rerunStatuses); meant != nil {
				hint = "did you mean " + meant[0] + "?"
			}
			return usage(hint, "unknown status %q", s)
		}
	}
	return nil
}

// picked returns a function that reports whether a trial is selected. Undecided trials are played
// in any case. If a selection was given but matches no trial, picked returns an error.
func (a *app) picked(d *rundir.Dir, p *rerunPick) (func(plan.Past) bool, error) {
	f := text.TrialFilter{Status: p.status, Arms: p.arms, Tasks: p.tasks, Flag: p.flag}
	if p.empty() {
		f.Status = []string{string(record.Infra), string(record.Provider), string(record.Grader)}
	}
	var ids []string
	for _, word := range p.trials {
		id, err := text.Find(d.Plan(), word)
		if err != nil {
			return nil, &exitError{ExitUsage, err, ""}
		}
		ids = append(ids, id)
	}
	res, err := launch.Results(d)
	if res == nil {
		return nil, err
	}
	path := rel(d.Path())
	rows := res.Trials(f)
	if err := nobody(res, path, rows, f); err != nil {
		return nil, err
	}
	meant := map[string]bool{}
	for _, r := range rows {
		if ids == nil || slices.Contains(ids, r.ID) {
			meant[r.ID] = true
		}
	}
	if len(meant) == 0 {
		if !p.empty() {
			return nil, usage("see what there is with: evalrun show "+path+" --trials", "no trial fits")
		}
		a.say("no trial is %s: to play others again name them by --status, --trial, --task, --arm or --flag",
			strings.Join(f.Status, ", "))
	}
	return func(was plan.Past) bool { return meant[was.Trial] }, nil
}

// split splits values at commas, so that "infra,grader" gives two statuses.
func split(values []string) (out []string) {
	for _, v := range values {
		for s := range strings.SplitSeq(v, ",") {
			out = append(out, strings.TrimSpace(s))
		}
	}
	return out
}

// nobody explains why a filter matches no trial, if it names a flag, an arm or a task that the run
// does not have.
func nobody(res *text.Results, path string, rows []text.TrialRow, f text.TrialFilter) error {
	if rows != nil {
		return nil
	}
	if f.Flag != "" && !slices.Contains(res.Flags(), f.Flag) {
		hint := "no trial of this run has a flag"
		if known := res.Flags(); len(known) > 0 {
			hint = "flags: " + strings.Join(known, ", ")
		}
		return usage(hint, "no trial of %s has the flag %q", path, f.Flag)
	}
	var arms, tasks []string
	for _, x := range res.Plan.Arms {
		arms = append(arms, x.Name)
	}
	for _, x := range res.Plan.Tasks {
		tasks = append(tasks, x.ID)
	}
	for _, x := range []struct {
		what         string
		asked, known []string
		alone        text.TrialFilter
	}{{"arm", f.Arms, arms, text.TrialFilter{Arms: f.Arms}},
		{"task", f.Tasks, tasks, text.TrialFilter{Tasks: f.Tasks}}} {
		if len(x.asked) > 0 && res.Trials(x.alone) == nil {
			hint := "see evalrun show " + path + " --trials"
			if meant := suggest.Names(x.asked[0], x.known); meant != nil {
				hint = fmt.Sprintf("did you mean %q?", meant[0])
			}
			return usage(hint, "%s has no %s %q", path, x.what, strings.Join(x.asked, ", "))
		}
	}
	return nil
}
