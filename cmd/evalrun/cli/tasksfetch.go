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
		Usage:     "put the data of a benchmark into the user's folder, where it is then found",
		ArgsUsage: "BENCHMARK",
		Description: `So far there is miniwob: the 125 pages of MiniWoB++, which are not ours to give away. The package miniwob has them:

   pip download --no-deps miniwob
   evalrun tasks fetch miniwob --from miniwob-*.whl
   evalrun run miniwob --agent oracle --agent nop --filter oracle=true

--from is a wheel, a ZIP (of the repository, say) or a folder. Nothing of an archive is trusted: names stay below the folder, links and what is too
large are refused, a wheel's files are compared with its own list of digests. What was there before is replaced as a whole, or not at all. The
folder is evalrun/miniwob in XDG_DATA_HOME, else in ~/.local/share.`,
		Flags: []cli.Flag{&cli.StringFlag{Name: "from", Usage: "a wheel, a ZIP or a folder: `PATH`",
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
