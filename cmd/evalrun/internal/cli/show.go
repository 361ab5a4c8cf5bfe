package cli

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/wire"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/render"
)

type showOptions struct {
	trial              string
	json, full, markup bool
}

func (a *app) showCommand() *cli.Command {
	var o showOptions
	return &cli.Command{
		Name:      "show",
		Usage:     "print a run's summary, or one trial's whole story",
		ArgsUsage: "RUN",
		Description: `A run may be looked at while it goes on. A trial is named by its id, the beginning of one, or its task where that is one trial.

Examples:
   evalrun show runs/2026-11-21T093000Z-nightly
   evalrun show out --json | jq '.arms[] | {arm, mean}'
   evalrun show out --trial 3f2a --full`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "trial", Usage: "the whole story of trial `ID`", Destination: &o.trial},
			&cli.BoolFlag{Name: "full", Usage: "cut nothing", Destination: &o.full},
			&cli.BoolFlag{Name: "json", Usage: "the summary as JSON; of a trial, its journal entries, one a line", Destination: &o.json},
			&cli.BoolFlag{Name: "markdown", Usage: "the summary as Markdown", Destination: &o.markup},
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			path, err := one(cmd, "run folder")
			if err != nil {
				return err
			}
			return a.show(path, &o)
		},
	}
}

func (a *app) show(path string, o *showOptions) error {
	d, err := rundir.View(path)
	if err != nil {
		return folderError(err)
	}
	style := a.style()
	style.Full = o.full
	if o.trial != "" {
		id, err := render.Find(d.Plan(), o.trial)
		if err != nil {
			return &exitError{ExitUsage, err, ""}
		}
		if o.json {
			return render.StoryJSON(a.Stdout, id, journal.Scan(d.Journal()))
		}
		return render.Story(a.Stdout, style, d.Plan(), id, journal.Scan(d.Journal()))
	}
	res, err := wire.Results(d)
	if res == nil {
		return err
	}
	if err != nil {
		a.say("warning: %v", err)
	}
	sum := res.Summary(path)
	switch {
	case o.json:
		return sum.JSON(a.Stdout)
	case o.markup:
		return sum.Markdown(a.Stdout)
	}
	if who, busy := rundir.Holder(path); busy {
		a.say("process %d works in it: this is a picture of the moment", who.PID)
	}
	return sum.Text(a.Stdout, style)
}
