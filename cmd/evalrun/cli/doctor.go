package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness/launch"
)

func (a *app) doctorCommand() *cli.Command {
	var asJSON bool
	var envFile string
	return &cli.Command{
		Name:  "doctor",
		Usage: "check what works on this machine, and how to fix the rest",
		Description: `The exit code is 1 if no sandbox driver with isolation works. API keys are only checked for presence, never printed.

Examples:
   evalrun doctor
   evalrun doctor --env-file .env --json`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "print a JSON array", Destination: &asJSON},
			&cli.StringFlag{Name: "env-file", Usage: "also look for API keys in `FILE`", Destination: &envFile},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if err := none(cmd); err != nil {
				return err
			}
			findings, err := launch.Examine(ctx, a.Kinds, a.Env, envFile)
			if err != nil {
				return &exitError{ExitUsage, err, ""}
			}
			bad := false
			for _, f := range findings {
				bad = bad || f.State == launch.Bad
			}
			if asJSON {
				b, err := json.MarshalIndent(findings, "", "  ")
				if err != nil {
					return err
				}
				a.Stdout.Write(append(b, '\n'))
			} else {
				w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
				line := func(state, what string, f launch.Finding) {
					fmt.Fprintf(w, "%s\t%s\t%s\n", state, what, progress.Clean(f.Text))
					if f.Hint != "" {
						fmt.Fprintf(w, "\t\t→ %s\n", f.Hint)
					}
				}
				for _, f := range findings {
					line(f.State, f.What, f)
					for _, fact := range f.Facts {
						if fact.State == launch.Good { // mark only facts with problems
							fact.State = ""
						}
						line(fact.State, "  "+progress.Clean(fact.What), fact)
					}
				}
				w.Flush()
			}
			if bad {
				return &exitError{ExitInternal, nil, ""}
			}
			return nil
		},
	}
}

func (a *app) gcCommand() *cli.Command {
	return &cli.Command{
		Name:      "gc",
		Usage:     "remove sandboxes and files that dead runs left behind",
		ArgsUsage: "[RUN…]",
		Description: `Removes the sandboxes of all runs that have ended, and the temporary files of the given run folders. Results are never
touched.

Examples:
   evalrun gc
   evalrun gc runs/*`,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			res, err := launch.Sweep(ctx, a.Kinds, cmd.Args().Slice())
			for _, r := range res {
				what := r.What
				if r.Removed == 1 {
					what = strings.TrimSuffix(what, "s")
				}
				fmt.Fprintf(a.Stdout, "%s: removed %d %s\n", progress.Clean(r.Where), r.Removed, what)
			}
			if err != nil {
				return folderError(err)
			}
			return nil
		},
	}
}
