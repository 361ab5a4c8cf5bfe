package cli

import (
	"context"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/config"
	"github.com/evalrun/evalrun/cmd/evalrun/internal/wire"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
)

func (a *app) resumeCommand() *cli.Command {
	var o playOptions
	var workers string
	return &cli.Command{
		Name:      "resume",
		Usage:     "go on with a run that was interrupted",
		ArgsUsage: "RUN",
		Description: `Trials that have their verdict are not done again. Replies that a model has given are not paid for again, as far as they
were received.

Examples:
   evalrun resume runs/2026-11-21T093000Z-nightly
   evalrun resume out -n 2`,
		Flags: append(o.flags(), workersFlag(&workers)),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return a.goOn(ctx, cmd, &o, workers, nil)
		},
	}
}

func workersFlag(dst *string) cli.Flag {
	return &cli.StringFlag{Name: "workers", Aliases: []string{"n"}, Usage: "`N` trials at once", Destination: dst}
}

func (a *app) rerunCommand() *cli.Command {
	var o playOptions
	var workers, status string
	return &cli.Command{
		Name:      "rerun",
		Usage:     "try decided trials once more; the old attempts are kept",
		ArgsUsage: "RUN",
		Description: `Takes the trials whose verdict is of one of the statuses, and also what is not decided yet.

Examples:
   evalrun rerun runs/2026-11-21T093000Z-nightly
   evalrun rerun out --status infra,grader,provider`,
		Flags: append(o.flags(), workersFlag(&workers),
			&cli.StringFlag{Name: "status", Usage: "trials of these `STATUSES`: scored, infra, provider, grader, canceled, skipped", Value: "infra,provider,grader", Destination: &status}),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			again, err := statuses(status)
			if err != nil {
				return err
			}
			return a.goOn(ctx, cmd, &o, workers, func(p plan.Past) bool { return again[p.Status] })
		},
	}
}

func statuses(list string) (map[record.Status]bool, error) {
	known := []record.Status{record.Scored, record.Infra, record.Provider, record.Grader, record.Canceled, record.Skipped}
	out := map[record.Status]bool{}
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		found := false
		var names []string
		for _, k := range known {
			found = found || string(k) == word
			names = append(names, string(k))
		}
		if !found {
			hint := "statuses: " + strings.Join(names, ", ")
			if near := config.Near(word, names); near != nil {
				hint = "did you mean " + near[0] + "?"
			}
			return nil, usage(hint, "unknown status %q", word)
		}
		out[record.Status(word)] = true
	}
	return out, nil
}

// goOn plays what is left of a run.
func (a *app) goOn(ctx context.Context, cmd *cli.Command, o *playOptions, workers string, again func(plan.Past) bool) (err error) {
	path, err := one(cmd, "run folder")
	if err != nil {
		return err
	}
	if err := a.checkPlay(o); err != nil {
		return err
	}
	d, err := rundir.Open(path)
	if err != nil {
		return folderError(err)
	}
	defer closing(d, &err)
	opts := a.options()
	opts.Workers = workers
	ready, err := wire.Restore(ctx, d.Plan(), opts)
	if err != nil {
		return &exitError{ExitUsage, err, ""}
	}
	defer closing(ready, &err)
	return a.play(ctx, ready, d, o, again)
}
