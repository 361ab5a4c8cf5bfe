package cli

import (
	"context"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/harness/launch"
)

func (a *app) resumeCommand() *cli.Command {
	var o playOptions
	var over overrides
	var c launch.Control
	return &cli.Command{
		Name:      "resume",
		Usage:     "continue an interrupted run",
		ArgsUsage: "RUN",
		Description: `Continues an interrupted run. Finished trials are not repeated, and model replies that were received are not paid for
again. Trials that failed because of the model's service are retried; with --failed, so are trials that failed because
of the sandbox (infra) or the grader.

If a task has changed since the run was planned, resume stops. Restore the task, or use --leave-changed to leave its
trials undecided: they count as planned, but not as evidence.

If a part of the run's records is damaged or missing, resume names it and changes nothing. With --accept-loss it
continues without that part: trials that lost their verdict are run again, and money spent still counts toward the
budget as far as it is on record. Damaged files are kept in journal/quarantine/; run.json and the summary list what was
lost.

Examples:
   evalrun resume runs/2026-11-21T093000Z-nightly
   evalrun resume out -n 2 --failed
   evalrun resume out --accept-loss
   evalrun resume out --budget 50                 after the budget was reached
   evalrun resume out --deadline none             after the deadline has passed`,
		Flags: append(append(o.flags(), over.playFlags()...),
			&cli.BoolFlag{Name: "failed", Usage: "also retry trials with status infra or grader",
				Destination: &c.Failed},
			&cli.BoolFlag{Name: "leave-changed", Usage: "leave trials undecided if their task has changed",
				Destination: &c.LeaveChanged},
			&cli.BoolFlag{Name: "accept-loss", Usage: "continue without records that are damaged or missing",
				Destination: &o.acceptLoss},
			o.checksFlag(checksUsed)),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return a.goOn(ctx, cmd, &o, over, c, nil)
		},
	}
}

// overrides are settings that a resumed run may change.
type overrides struct{ workers, budget, deadline string }

func (o *overrides) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "workers", Aliases: []string{"n"}, Usage: "run `N` trials at once",
			Destination: &o.workers},
		&cli.StringFlag{Name: "budget", Usage: "the run may cost at most `USD`, including what it has spent; " +
			"0: no limit", Destination: &o.budget},
	}
}

// playFlags returns the flags of commands that run trials.
func (o *overrides) playFlags() []cli.Flag {
	return append(o.flags(), &cli.StringFlag{Name: "deadline",
		Usage:       "stop the run at `TIME`, such as 06:00, or a duration from now, or none",
		Destination: &o.deadline})
}

func (a *app) rerunCommand() *cli.Command {
	var o playOptions
	var over overrides
	var pick rerunPick
	return &cli.Command{
		Name:      "rerun",
		Usage:     "run decided trials again; the old attempts are kept",
		ArgsUsage: "RUN",
		Description: `Runs the decided trials that match all of --status, --trial, --task, --arm and --flag, and every trial that is not
decided yet. Without these flags it runs the trials that are not evidence: infra, provider, grader. Trials whose task
has changed run only if a flag selects them. In names, * matches anything.

A trial that had a score gets a new one. The summary and comparisons say how many trials were run again.

Examples:
   evalrun rerun runs/2026-11-21T093000Z-nightly
   evalrun rerun out --status infra,skipped
   evalrun rerun out --status failed --arm codeact-small
   evalrun rerun out --trial 3f2a`,
		Flags: append(append(o.flags(), over.playFlags()...),
			&cli.StringSliceFlag{Name: "status",
				Usage: "trials with `STATUS`: " + strings.Join(rerunStatuses, ", "), Destination: &pick.status},
			&cli.StringSliceFlag{Name: "trial", Usage: "trial `ID`, or the beginning of one; repeatable",
				Destination: &pick.trials},
			&cli.StringSliceFlag{Name: "task", Usage: "trials of `TASK`; repeatable", Destination: &pick.tasks},
			&cli.StringSliceFlag{Name: "arm", Usage: "trials of `ARM`; repeatable", Destination: &pick.arms},
			&cli.StringFlag{Name: "flag", Usage: "trials with flag `NAME`, such as no_reward",
				Destination: &pick.flag}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := pick.check(); err != nil {
				return err
			}
			return a.goOn(ctx, cmd, &o, over, launch.Control{}, &pick)
		},
	}
}

// goOn plays the remaining trials of a run, and the decided trials that pick selects; pick may be
// nil.
func (a *app) goOn(ctx context.Context, cmd *cli.Command, o *playOptions, over overrides, c launch.Control,
	pick *rerunPick) (err error) {
	path, err := one(cmd, "run folder")
	if err != nil {
		return err
	}
	if err := a.checkPlay(o); err != nil {
		return err
	}
	if c.Checks, err = o.openChecks(false); err != nil {
		return err
	}
	d, err := launch.Open(path)
	if err != nil {
		return folderError(err)
	}
	defer closing(d, &err)
	if o.acceptLoss {
		err = launch.SetAside(d)
	} else {
		err = a.whole(d)
	}
	if err != nil {
		return err
	}
	a.remade(d)
	if pick != nil {
		if c.Again, err = a.picked(d, pick); err != nil {
			return err
		}
	}
	opts := a.options()
	opts.Workers, opts.Budget, opts.Deadline, opts.AcceptLoss = over.workers, over.budget, over.deadline, o.acceptLoss
	ready, err := launch.Restore(ctx, d, opts)
	if err != nil {
		return &exitError{ExitUsage, err, ""}
	}
	defer closing(ready, &err)
	return a.play(ctx, ready, d, o, c)
}
