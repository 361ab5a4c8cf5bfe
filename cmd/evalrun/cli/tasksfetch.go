package cli

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/progress"
	"github.com/evalrun/evalrun/harness/launch"
)

func (a *app) tasksFetch() *cli.Command {
	var from string
	return &cli.Command{
		Name:      "fetch",
		Usage:     "install the data of a benchmark for the current user",
		ArgsUsage: "BENCHMARK",
		Description: `Installs the 125 pages of MiniWoB++, which evalrun does not distribute. The Python package miniwob has them:

   pip download --no-deps miniwob
   evalrun tasks fetch miniwob --from miniwob-*.whl
   evalrun run miniwob --agent oracle --agent nop --filter oracle=true

--from is a wheel, a ZIP file (of the repository, for example) or a folder. Archives are not trusted: links, paths that
lead outside and files that are too large are refused, and a wheel's files must match its list of digests. An existing
installation is replaced as a whole or not at all. The pages go to evalrun/miniwob in XDG_DATA_HOME, or in
~/.local/share if that is not set.`,
		Flags: []cli.Flag{&cli.StringFlag{Name: "from", Usage: "`PATH` of a wheel, a ZIP file or a folder",
			Destination: &from}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			name, err := one(cmd, "benchmark")
			if err != nil {
				return err
			}
			if from == "" {
				return usage("add --from PATH: a wheel, a ZIP or a folder",
					"evalrun tasks fetch needs to be told where from")
			}
			text, err := launch.Fetch(ctx, name, from)
			if err != nil {
				return &exitError{ExitUsage, err, ""}
			}
			fmt.Fprintln(a.Stdout, progress.Clean(text))
			return nil
		},
	}
}
