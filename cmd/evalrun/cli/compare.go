package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/text"
)

func (a *app) compareCommand() *cli.Command {
	var x, y string
	var asJSON, markup bool
	return &cli.Command{
		Name:      "compare",
		Usage:     "compare arms on the tasks they have in common: paired difference with confidence interval",
		ArgsUsage: "RUN [RUN…]",
		Description: `With one run, compares its first arm with each other arm. With several runs, compares each arm of the first run with
the arm of the same name in the others. Warns if tasks or limits differ.

Examples:
   evalrun compare out
   evalrun compare out -a small -b large
   evalrun compare runs/last-night runs/tonight --json`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "a", Usage: "the baseline `ARM`", Destination: &x},
			&cli.StringFlag{Name: "b", Usage: "the `ARM` to compare with the baseline", Destination: &y},
			&cli.BoolFlag{Name: "json", Usage: "print JSON", Destination: &asJSON},
			&cli.BoolFlag{Name: "markdown", Usage: "print Markdown", Destination: &markup},
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			paths := cmd.Args().Slice()
			if len(paths) == 0 {
				return usage("see evalrun compare --help", "evalrun compare needs a run folder")
			}
			var runs []*text.Results
			var damaged findings
			path := ""
			for _, p := range paths {
				d, err := rundir.View(p)
				if err != nil {
					return folderError(err)
				}
				if err := launch.Whole(d); err != nil {
					if err = fmt.Errorf("%s: %w", p, err); !damaged.add(err) {
						return folderError(err)
					}
					path = p
				}
				a.derived(d, p)
				res, err := launch.Results(d)
				if res == nil {
					return damaged.after(err, path)
				}
				if err != nil {
					if err = fmt.Errorf("%s: %w", p, err); damaged.add(err) {
						path = p
					} else {
						a.say("warning: %v", err)
					}
				}
				runs = append(runs, res)
			}
			return damaged.after(a.compareRuns(runs, paths, x, y, asJSON, markup), path)
		},
	}
}

// compareRuns prints the comparison of the runs' arms.
func (a *app) compareRuns(runs []*text.Results, paths []string, x, y string, asJSON, markup bool) error {
	pairs, err := text.Sides(runs, paths, x, y)
	if err != nil {
		return &exitError{ExitUsage, err, ""}
	}
	cs := text.Compare(pairs)
	if !slices.ContainsFunc(cs, func(c text.Comparison) bool { return c.Pairs+c.LeftOut > 0 }) {
		return usage("compare runs of the same benchmark and selection; evalrun show RUN says what a run has played",
			"the arms have no task in common, so there is nothing to compare")
	}
	if asJSON {
		return text.ComparisonsJSON(a.Stdout, cs)
	}
	for i := range cs {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		if markup {
			err = cs[i].Markdown(a.Stdout)
		} else {
			err = cs[i].Text(a.Stdout, a.style())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
