package cli

import (
	"context"
	"fmt"
	"runtime"

	"github.com/urfave/cli/v3"
)

func (a *app) versionCommand() *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "print the version",
		Description: "Example:\n   evalrun version",
		Action: func(_ context.Context, cmd *cli.Command) error {
			if err := none(cmd); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.Stdout, "evalrun %s %s %s/%s\n", a.Version, runtime.Version(), runtime.GOOS,
				runtime.GOARCH)
			return err
		},
	}
}

func (a *app) helpCommand() *cli.Command {
	return &cli.Command{
		Name:      "help",
		Usage:     "print help for a command, or the exit codes",
		ArgsUsage: "[COMMAND | exit-codes]",
		Description: `Examples:
   evalrun help run
   evalrun help exit-codes`,
		Action: func(_ context.Context, cmd *cli.Command) error {
			words := cmd.Args().Slice()
			if len(words) == 1 && words[0] == "exit-codes" {
				printExitCodes(a.Stdout)
				return nil
			}
			at := cmd.Root()
			for _, w := range words {
				next := at.Command(w)
				if next == nil {
					return a.unknownCommand(at, w)
				}
				at = next
			}
			// A new context is needed, because the current one would make the new root command a
			// child of the old one.
			return a.root().Run(context.Background(), append(append([]string{"evalrun"}, words...), "--help"))
		},
	}
}
