package cli

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/harness/config"
)

func (a *app) configCommand() *cli.Command {
	var o configOptions
	return &cli.Command{
		Name:  "config",
		Usage: "print configurations and their schema",
		Description: `Examples:
   evalrun config show nightly.yaml
   evalrun config schema > evalrun.schema.json`,
		Commands: []*cli.Command{
			{
				Name: "show",
				Usage: "print the effective configuration: with defaults and the expanded matrix; secrets stay " +
					"references",
				ArgsUsage: "FILE.yaml | BENCHMARK…",
				Description: `The output is itself a configuration. Takes the flags of run.

Examples:
   evalrun config show nightly.yaml
   evalrun config show quickstart --agent nop --set limits.turns=20`,
				Flags: o.flags(a.reg),
				Action: func(_ context.Context, cmd *cli.Command) error {
					if !cmd.Args().Present() {
						return usage("see evalrun config show --help",
							"evalrun config show needs a configuration file or a benchmark")
					}
					eff, err := a.configure(cmd.Args().Slice(), &o)
					if err != nil {
						return err
					}
					b, err := eff.YAML()
					if err != nil {
						return err
					}
					_, err = a.Stdout.Write(b)
					return err
				},
			},
			{
				Name:  "schema",
				Usage: "print the JSON Schema of configurations",
				Description: `Examples:
   evalrun config schema > evalrun.schema.json
   # then, as the first line of a configuration:
   # yaml-language-server: $schema=evalrun.schema.json`,
				Action: func(_ context.Context, cmd *cli.Command) error {
					if err := none(cmd); err != nil {
						return err
					}
					b, err := config.Schema(a.reg)
					if err != nil {
						return err
					}
					_, err = a.Stdout.Write(append(b, '\n'))
					return err
				},
			},
		},
	}
}
