package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/cmd/evalrun/internal/wire"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/render"
)

type showOptions struct {
	trial, flag        string
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
   evalrun show out --trial 3f2a --full
   evalrun show out --flag no_reward`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "trial", Usage: "the whole story of trial `ID`", Destination: &o.trial},
			&cli.StringFlag{Name: "flag", Usage: "the trials that have flag `NAME`, such as no_reward", Destination: &o.flag},
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
	if o.flag != "" {
		return a.showFlag(res, path, o)
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

// showFlag lists the trials that have a flag.
func (a *app) showFlag(res *render.Results, path string, o *showOptions) error {
	refs, known := res.Flagged(o.flag)
	if refs == nil {
		hint := "no trial of this run has a flag"
		if len(known) > 0 {
			hint = "flags: " + strings.Join(known, ", ")
		}
		return usage(hint, "no trial of %s has the flag %q", path, o.flag)
	}
	if o.json {
		enc := json.NewEncoder(a.Stdout)
		for _, r := range refs {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TRIAL\tARM\tTASK\tREPEAT")
	for _, r := range refs {
		fmt.Fprintf(w, "%s\t%s\t%s/%s\t%d\n", r.ID, progress.Clean(r.Arm), progress.Clean(r.Benchmark), progress.Clean(r.Task), r.Repeat)
	}
	return w.Flush()
}
