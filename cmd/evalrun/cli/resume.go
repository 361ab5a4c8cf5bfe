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
		Usage:     "go on with a run that was interrupted",
		ArgsUsage: "RUN",
		Description: `Trials that have their verdict are not done again. Replies that a model has given are not paid for again, as far as they
were received. Trials that failed because of the model's service are tried again, with all their tries; --failed does the
same for those that failed because of the sandboxes (infra) or the grader.

A task whose content has changed since the run was planned stops the resume. Put the content back, or leave its trials
undecided with --leave-changed; they then count as planned and not as evidence.

Where a part of the run's records is damaged or missing, the command names it and changes nothing; --accept-loss goes on without it.
Trials whose verdict is lost are then played again. What the run had spent counts for its budget still, as far as any file of its folder
knows of it. What is left of damaged files is kept in journal/quarantine/, and run.json and the summary say what was lost.

Examples:
   evalrun resume runs/2026-11-21T093000Z-nightly
   evalrun resume out -n 2 --failed
   evalrun resume out --accept-loss
   evalrun resume out --budget 50                 after its budget was reached
   evalrun resume out --deadline none             after its deadline has passed`,
		Flags: append(append(o.flags(), over.playFlags()...),
			&cli.BoolFlag{Name: "failed", Usage: "also try trials again that were decided infra or grader",
				Destination: &c.Failed},
			&cli.BoolFlag{Name: "leave-changed", Usage: "leave trials undecided whose task has changed",
				Destination: &c.LeaveChanged},
			&cli.BoolFlag{Name: "accept-loss", Usage: "go on without what is damaged or missing",
				Destination: &o.acceptLoss}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return a.goOn(ctx, cmd, &o, over, c, nil)
		},
	}
}

// overrides are what a run that goes on may have otherwise than its configuration says.
type overrides struct{ workers, budget, deadline string }

func (o *overrides) flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "workers", Aliases: []string{"n"}, Usage: "`N` trials at once", Destination: &o.workers},
		&cli.StringFlag{Name: "budget", Usage: "`USD` that the whole run may cost, with what was spent so far; " +
			"0: no limit", Destination: &o.budget},
	}
}

// playFlags are those of commands that play trials.
func (o *overrides) playFlags() []cli.Flag {
	return append(o.flags(), &cli.StringFlag{Name: "deadline",
		Usage:       "`TIME` at which the run ends, such as 06:00, a duration from now on, or none",
		Destination: &o.deadline})
}

func (a *app) rerunCommand() *cli.Command {
	var o playOptions
	var over overrides
	var pick rerunPick
	return &cli.Command{
		Name:      "rerun",
		Usage:     "try decided trials once more; the old attempts are kept",
		ArgsUsage: "RUN",
		Description: `Takes the decided trials for which all of --status, --trial, --task, --arm and --flag hold, and also what is not decided yet,
but for tasks whose content has changed, which are left alone unless they are picked.
Without any of them it takes those that are no evidence: infra, provider, grader. In names, * stands for anything.
A trial that had a score gets another one; the summary and comparisons say of how many that is so.

Examples:
   evalrun rerun runs/2026-11-21T093000Z-nightly
   evalrun rerun out --status infra,skipped
   evalrun rerun out --status failed --arm codeact-small
   evalrun rerun out --trial 3f2a`,
		Flags: append(append(o.flags(), over.playFlags()...),
			&cli.StringSliceFlag{Name: "status",
				Usage: "trials that are `STATUS`: " + strings.Join(rerunStatuses, ", "), Destination: &pick.status},
			&cli.StringSliceFlag{Name: "trial", Usage: "trial `ID`, or what its id begins with; may be repeated",
				Destination: &pick.trials},
			&cli.StringSliceFlag{Name: "task", Usage: "trials of `TASK`; may be repeated", Destination: &pick.tasks},
			&cli.StringSliceFlag{Name: "arm", Usage: "trials of `ARM`; may be repeated", Destination: &pick.arms},
			&cli.StringFlag{Name: "flag", Usage: "trials that have flag `NAME`, such as no_reward",
				Destination: &pick.flag}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := pick.check(); err != nil {
				return err
			}
			return a.goOn(ctx, cmd, &o, over, launch.Control{}, &pick)
		},
	}
}

// goOn plays what is left of a run, and what is picked of the decided trials; nil: none of them.
func (a *app) goOn(ctx context.Context, cmd *cli.Command, o *playOptions, over overrides, c launch.Control,
	pick *rerunPick) (err error) {
	path, err := one(cmd, "run folder")
	if err != nil {
		return err
	}
	if err := a.checkPlay(o); err != nil {
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
