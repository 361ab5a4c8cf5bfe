package cli

import (
	"github.com/evalrun/evalrun/cmd/evalrun/internal/wire"
	"github.com/evalrun/evalrun/harness/rundir"
)

// conclude prints the summary of a run and says how it ended.
func (a *app) conclude(ready *wire.Ready, d *rundir.Dir, out wire.Outcome, o *playOptions) error {
	if out.Left > 0 {
		a.say("%d machines had to be removed after the end", out.Left)
	}
	a.say("run folder: %s", rel(d.Path()))
	switch out.Reason {
	case "drained", "stopped":
		a.say("stopped; go on with: evalrun resume %s", rel(d.Path()))
		return &exitError{ExitStopped, nil, ""}
	case "budget", "deadline":
		a.say("the run's %s was reached; go on with: evalrun resume %s", out.Reason, rel(d.Path()))
		return &exitError{ExitBudget, nil, ""}
	case "disk":
		return &exitError{ExitInternal, nil, ""}
	}
	return nil
}
