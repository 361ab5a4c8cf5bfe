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
		Usage: "say what works on this machine, and why not",
		Description: `The exit code is 1 when no driver with isolation works. Of keys it says only whether they are there.

Examples:
   evalrun doctor
   evalrun doctor --env-file .env --json`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "json", Usage: "a JSON array", Destination: &asJSON},
			&cli.StringFlag{Name: "env-file", Usage: "look for keys in `FILE` too", Destination: &envFile},
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
						if fact.State == launch.Good { // of what is, only what is not as it should be needs a mark
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
		Usage:     "remove what dead runs left behind",
		ArgsUsage: "[RUN…]",
		Description: `Machines whose run no longer works are removed, whichever run it was; so are the temporary files of the run folders that are
named. Results are never touched.

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
