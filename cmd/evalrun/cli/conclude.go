package cli

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/term"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/text"
)

// conclude prints the summary of a run, evaluates its gates, and reports why it ended.
func (a *app) conclude(ready *launch.Ready, d *rundir.Dir, out launch.Outcome, o *playOptions) error {
	res, err := launch.Results(d)
	if res == nil {
		return err
	}
	if err != nil {
		a.say("warning: %v", err)
	}
	path := rel(d.Path())
	sum, err := launch.Summary(res, path)
	if err != nil {
		return err
	}
	code := verdict(ready, sum, out)
	if err := errors.Join(launch.Store(d, sum), launch.Finish(d, code)); err != nil {
		return err
	}
	if o.json {
		err = sum.JSON(a.Stdout)
	} else {
		err = sum.Text(a.Stdout, a.style())
	}
	if err != nil {
		return err
	}
	a.printGates(sum, o.json)
	if out.Left > 0 {
		a.say("%d machines had to be removed after the end", out.Left)
	}
	if out.Parquet != nil {
		a.say("warning: parquet: %v; the journal is whole: evalrun resume %s makes the files again", out.Parquet, path)
	}
	a.farewell(ready, code, sum, out, path)
	if code != ExitDone {
		return &exitError{code, nil, ""}
	}
	return nil
}

// printGates prints the results of the gates, unless the summary was printed as text.
func (a *app) printGates(sum *text.Summary, noText bool) {
	if !noText && !a.lines {
		return
	}
	for _, g := range sum.Gates {
		a.notify("gate", map[string]any{"passed": g.Passed}, "%s", g.Text(a.errStyle()))
	}
}

// verdict returns the exit code of a run that ended normally.
func verdict(ready *launch.Ready, sum *text.Summary, out launch.Outcome) int {
	switch out.Reason {
	case "disk", "storage":
		return ExitInternal
	case "stopped":
		return ExitStopped
	case "budget", "usage", "deadline":
		return ExitBudget
	}
	for _, g := range sum.Gates {
		if !g.Passed {
			return ExitGate
		}
	}
	least := 1.0
	if m := ready.Eff.MinCoverage; m != nil {
		least = *m
	}
	// a nil coverage means that all were skipped
	if sum.Coverage != nil && *sum.Coverage < least || sum.Coverage == nil && sum.Planned > 0 && least > 0 {
		return ExitCoverage
	}
	return ExitDone
}

// farewell reports why the run ended, where its files are, and what the user can do next.
func (a *app) farewell(ready *launch.Ready, code int, sum *text.Summary, out launch.Outcome, path string) {
	switch code {
	case ExitStopped:
		a.say("stopped. Go on with: evalrun resume %s", path)
	case ExitBudget:
		a.say("%s", ended(out.Summary, ready.Eff.Budget, "evalrun resume "+path))
	case ExitInternal:
		a.say("there is too little free disk space; nothing was lost. Make room, then: evalrun resume %s", path)
	case ExitCoverage:
		if sum.Scored == 0 && sum.Skipped == sum.Planned {
			a.say("no task could be played. See why with: evalrun show %s", path)
			break
		}
		if left := sum.Planned - sum.Decided; left > 0 {
			a.say("coverage is below min_coverage: %d of %d trials are undecided. When what kept them back is "+
				"mended, go on with: evalrun resume %s", left, sum.Planned, path)
			break
		}
		a.say("coverage is below min_coverage. Try what is no evidence once more with: evalrun rerun %s", path)
	}
	a.notify("end", map[string]any{"exit": code, "reason": out.Reason, "path": path},
		"results: %s (summary.md, parquet/, journal/); its trials: evalrun show %s --trials", path, path)
}

// ended describes the limit that ended a run, and the command that continues it. again is that
// command without the flag that raises the limit.
func ended(s harness.Summary, b *config.Budget, again string) string {
	if b == nil {
		b = new(config.Budget)
	}
	switch s.Reason {
	case "usage":
		text := progress.Clean(s.Why)
		if strings.Contains(text, "budget.cost") {
			again += " --budget 0"
		}
		return text + ". Go on with: " + again
	case "budget":
		spent := fmt.Sprintf("%s and %d tokens were spent", text.USD(s.Cost), s.Tokens)
		if s.Estimated > 0 {
			spent += fmt.Sprintf(", %s of it by an upper estimate, as a price or what a call took is not known",
				text.USD(s.Estimated))
		}
		if b.Tokens > 0 && s.Tokens >= int64(b.Tokens) {
			return fmt.Sprintf("the run's budget of %d tokens was reached: %s. budget.tokens is fixed in this run: "+
				"begin a new one with more", b.Tokens, spent)
		}
		return fmt.Sprintf("the run's budget of %s was reached: %s. Go on with: %s --budget USD", text.USD(b.Cost),
			spent, again)
	case "deadline":
		if _, ok := b.Deadline.Moment(); ok {
			return fmt.Sprintf("the deadline %s has passed; lift it with: %s --deadline none", b.Deadline, again)
		}
		return fmt.Sprintf("the deadline %s has passed. Go on until it comes again with: %s; without it: %s "+
			"--deadline none", b.Deadline, again, again)
	}
	return "the run's " + s.Reason + " was reached. Go on with: " + again
}

// style returns the layout for text on stdout.
func (a *app) style() text.Style {
	s := text.Style{Color: a.color && a.OutTTY}
	if a.OutTTY {
		if w, _, err := term.GetSize(1); err == nil {
			s.Width = w
		}
	}
	return s
}

func (a *app) errStyle() text.Style { return text.Style{Color: a.color && a.ErrTTY} }
