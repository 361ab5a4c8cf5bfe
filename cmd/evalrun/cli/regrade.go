package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/internal/suggest"
	"github.com/evalrun/evalrun/reports/text"
)

type regradeOptions struct {
	playOptions
	over overrides
	pick launch.Pick
}

func (a *app) regradeCommand() *cli.Command {
	var o regradeOptions
	list := func(dst *[]string, name, usage string) cli.Flag {
		return &cli.StringSliceFlag{Name: name, Usage: usage, Destination: dst}
	}
	return &cli.Command{
		Name:      "regrade",
		Usage:     "grade finished trials again from their stored evidence, without running agents",
		ArgsUsage: "RUN",
		Description: `Grades the stored evidence of decided trials again: all of them, or those that the flags select. The newest grade
counts; the journal keeps the old ones. Of trials that were graded inside the agent's sandbox, the work is graded in a
fresh one if it was kept (flag from_work); where it cannot be, they are listed and keep their grade.

The exit code is 1 if evidence is damaged or missing (the trials are named, all others are graded), 3 if a grader
failed, otherwise that of the gates.

Examples:
   evalrun regrade runs/2026-11-21T093000Z-nightly
   evalrun regrade out --task 'web-*' --arm codeact-small
   evalrun regrade out --flag no_reward
   evalrun regrade out --task roman --changed    after its expected answer was corrected`,
		Flags: append(append(o.flags(), o.over.flags()...),
			list(&o.pick.Trials, "trial", "only trial `ID`, or the beginning of one; repeatable"),
			list(&o.pick.Tasks, "task", "only tasks whose id matches `PATTERN`; repeatable"),
			list(&o.pick.Arms, "arm", "only trials of arm `NAME`; repeatable"),
			list(&o.pick.Flags, "flag", "only trials with `FLAG`; repeatable"),
			&cli.BoolFlag{Name: "changed",
				Usage:       "also grade trials whose task has changed, by the task as it is now",
				Destination: &o.pick.Changed}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			path, err := one(cmd, "run folder")
			if err != nil {
				return err
			}
			return a.regrade(ctx, path, &o)
		},
	}
}

func (a *app) regrade(ctx context.Context, path string, o *regradeOptions) (err error) {
	if err := a.checkPlay(&o.playOptions); err != nil {
		return err
	}
	d, err := launch.Open(path)
	if err != nil {
		return folderError(err)
	}
	defer closing(d, &err)
	if err := a.whole(d); err != nil {
		return err
	}
	a.remade(d)
	pick := o.pick
	pick.Trials = nil
	for _, word := range o.pick.Trials {
		id, err := text.Find(d.Plan(), word)
		if err != nil {
			return &exitError{ExitUsage, err, ""}
		}
		pick.Trials = append(pick.Trials, id)
	}
	var arms []string
	for _, arm := range d.Plan().Arms {
		arms = append(arms, arm.Name)
	}
	for _, name := range pick.Arms {
		if !slices.Contains(arms, name) {
			hint := "arms: " + strings.Join(arms, ", ")
			if meant := suggest.Names(name, arms); meant != nil {
				hint = fmt.Sprintf("did you mean %q?", meant[0])
			}
			return usage(hint, "no arm is called %q", name)
		}
	}
	opts := a.options()
	opts.Workers, opts.Budget, opts.Grade = o.over.workers, o.over.budget, true
	ready, err := launch.Restore(ctx, d, opts)
	if err != nil {
		return &exitError{ExitUsage, err, ""}
	}
	defer closing(ready, &err)

	p := a.progress
	p.waiting, p.finishing = ready.Waiting, ready.Finishing
	stop := a.stopper(ctx, p)
	defer stop.close()
	out, err := ready.Regrade(stop.ctx, d, pick,
		launch.Control{Drain: stop.drain, Observe: p.observe, Begun: func(n int) {
			p.shows(o.progress, "trials", n, 0)
		}})
	p.close()
	if lost(err) {
		return lossError(err, rel(path))
	}
	if err != nil {
		return &exitError{ExitInternal, err, "grades given so far are kept; the command may be given again"}
	}
	if out.Picked == 0 {
		return usage("see what there is with: evalrun show "+rel(path), "no decided trial fits")
	}
	code, err := a.regraded(ready, d, out, o)
	if err != nil {
		return err
	}
	if out.Lost > 0 {
		return evidenceLost(out, rel(path))
	}
	if code != ExitDone {
		return &exitError{code, nil, ""}
	}
	return nil
}

// regraded prints what changed, rewrites the summary, and evaluates the gates.
func (a *app) regraded(ready *launch.Ready, d *rundir.Dir, out launch.RegradeOutcome, o *regradeOptions) (int, error) {
	res, err := launch.Results(d)
	if res == nil {
		return 0, err
	}
	sum, err := launch.Summary(res, rel(d.Path()))
	if err != nil {
		return 0, err
	}
	if err := launch.Store(d, sum); err != nil {
		return 0, err
	}
	if o.json {
		b, err := json.MarshalIndent(struct {
			launch.RegradeOutcome
			Summary *text.Summary `json:"summary"`
		}{out, sum}, "", "  ")
		if err != nil {
			return 0, err
		}
		a.Stdout.Write(append(b, '\n'))
	} else {
		a.printRegraded(out, rel(d.Path()))
	}
	if out.Parquet != nil {
		a.say("warning: parquet: %v; the journal is whole: evalrun resume %s makes the files again", out.Parquet,
			rel(d.Path()))
	}
	a.printGates(sum, true)
	switch {
	case out.Reason != "":
		a.say("%s", ended(out.Ended, ready.Eff.Budget, "evalrun regrade "+rel(d.Path())))
		return ExitBudget, nil
	case out.Stopped:
		return ExitStopped, nil
	case slices.ContainsFunc(sum.Gates, func(g text.GateResult) bool { return !g.Passed }):
		return ExitGate, nil
	case out.Failed > 0:
		return ExitCoverage, nil
	}
	return ExitDone, nil
}

// evidenceLost lists the trials that could not be regraded because their evidence is damaged or
// missing.
func evidenceLost(out launch.RegradeOutcome, path string) error {
	const most = 20
	var b, again strings.Builder
	n := 0
	for _, t := range out.Trials {
		if !t.Lost {
			continue
		}
		if n++; n <= most {
			fmt.Fprintf(&b, "\n  trial %s (%s, %s): %s", t.Trial, t.Task, t.Arm, t.Why)
			again.WriteString(" --trial " + t.Trial)
		}
	}
	if n > most {
		fmt.Fprintf(&b, "\n  and %d more: --json lists all", n-most)
	}
	return &exitError{ExitInternal, fmt.Errorf("evidence of %d of %d trials is damaged or missing, and their grades "+
		"stay as they are:%s", n, out.Picked, b.String()),
		"put a copy in its place, or play these trials again: evalrun rerun " + path + again.String()}
}

func (a *app) printRegraded(out launch.RegradeOutcome, path string) {
	if len(out.Trials) > 0 {
		w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "TASK\tARM\tWAS\tIS\tTRIAL")
		for _, t := range out.Trials {
			is := "as before: " + progress.Clean(t.Why)
			switch {
			case t.Is != nil:
				is = gradeText(*t.Is)
			case t.Lost: // the final error names the file
				is = "as before: its evidence is damaged or missing"
			}
			task := progress.Clean(t.Task)
			if t.Repeat > 1 {
				task += fmt.Sprintf(" #%d", t.Repeat)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", task, progress.Clean(t.Arm), gradeText(t.Was), is, t.Trial)
		}
		w.Flush()
	}
	parts := []string{fmt.Sprintf("%d graded again, %d of them changed", out.Graded, out.Changed)}
	for _, x := range []struct {
		n    int
		what string
	}{{out.Live, "cannot be graded again, as their machines are gone (evalrun rerun with --task, --arm or --trial " +
		"plays them again)"}, {out.Bare, "kept no evidence"}, {out.Failed, "could not be graded"},
		{out.Lost, "have evidence that is damaged or missing"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if slices.ContainsFunc(out.Trials, func(t launch.Regraded) bool {
		return strings.Contains(t.Why, harness.TaskChanged)
	}) {
		a.say("grade by the tasks as they are now with: evalrun regrade %s --changed", path)
	}
	if out.Stopped {
		parts = append(parts, "stopped before the rest")
	}
	fmt.Fprintf(a.Stdout, "of %d trials %s\n", out.Picked, strings.Join(parts, "; "))
}

func gradeText(g launch.Grade) string {
	text := string(g.Status)
	if g.Reward != nil {
		text = fmt.Sprintf("%.4g", *g.Reward)
	}
	if len(g.Flags) > 0 {
		text += " (" + progress.Clean(strings.Join(g.Flags, ", ")) + ")"
	}
	return text
}
