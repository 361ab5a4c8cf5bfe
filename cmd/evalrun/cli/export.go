package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/internal/suggest"
	"github.com/evalrun/evalrun/reports/export"
)

func (a *app) exportCommand() *cli.Command {
	var format, out, tables string
	var set []string
	kinds := a.reg.Exporters
	if len(kinds) == 0 { // the program has no export formats
		kinds = []config.Kind{{}}
	}
	return &cli.Command{
		Name:      "export",
		Usage:     "write a run's tables as JSON Lines or CSV",
		ArgsUsage: "RUN",
		Description: `Formats:
` + listed(a.reg.Exporters) + `
Tables: ` + strings.Join(export.Tables, ", ") + `. docs/schema.md describes
their columns. The run folder has the same tables as Parquet.

Examples:
   evalrun export out --format csv -o tables
   evalrun export out --format jsonl --tables trials,events -o tables`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "output `FORMAT`: " + strings.Join(kindNames(a.reg.Exporters), ", "),
				Value: kinds[0].Name, Destination: &format},
			&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "`FOLDER` to write to", Destination: &out},
			&cli.StringSliceFlag{Name: "set", Usage: "set option `KEY=VALUE` of the format; repeatable",
				Destination: &set},
			&cli.StringFlag{Name: "tables", Usage: "only `TABLES`, separated by commas", Destination: &tables},
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			path, err := one(cmd, "run folder")
			if err != nil {
				return err
			}
			if out == "" {
				return usage("add -o FOLDER", "export needs a folder to write to")
			}
			f, err := a.format(format, set)
			if err != nil {
				return err
			}
			var only []string
			for t := range strings.SplitSeq(tables, ",") {
				if t = strings.TrimSpace(t); t == "" {
					continue
				}
				if !slices.Contains(export.Tables, t) {
					hint := "tables: " + strings.Join(export.Tables, ", ")
					if meant := suggest.Names(t, export.Tables); meant != nil {
						hint = fmt.Sprintf("did you mean %q?", meant[0])
					}
					return usage(hint, "unknown table %q", t)
				}
				only = append(only, t)
			}
			d, err := rundir.View(path)
			if err != nil {
				return folderError(err)
			}
			var found findings
			if err := found.whole(d); err != nil {
				return err
			}
			a.derived(d, path)
			setup := export.Setup{Arg: f.Arg, Options: f.Options, Tables: only}
			files, err := export.Export(out, a.Kinds.Exporter(f.Name), setup, d.Plan(), journal.Scan(d.Journal()))
			var some *export.Incomplete
			if err != nil && !errors.As(err, &some) {
				return found.after(err, path)
			}
			if some != nil {
				found.add(fmt.Errorf("the files are without what %s does not have:\n%w", rel(d.Journal()), some))
			}
			err = found.after(err, path)
			if err != nil && some == nil {
				return err
			}
			for _, file := range files {
				fmt.Fprintln(a.Stdout, file)
			}
			return err
		},
	}
}

// format evaluates --format and --set.
func (a *app) format(text string, set []string) (config.Exporter, error) {
	var over []config.Override
	for _, s := range set {
		key, val, ok := strings.Cut(s, "=")
		if !ok || !plainKey(key) {
			return config.Exporter{}, usage("write --set header=false, say", "--set %q is not of the form KEY=VALUE", s)
		}
		over = append(over, config.Override{Flag: "--set " + key, Path: "options." + key, Values: []string{val},
			YAML: true})
	}
	dir, err := os.Getwd()
	if err != nil {
		return config.Exporter{}, err
	}
	return a.reg.Exporter(text, over, dir)
}

// listed formats kinds with their descriptions, one per line.
func listed(kinds []config.Kind) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for i, name := range kindNames(kinds) {
		fmt.Fprintf(w, "   %s\t%s\n", name, kinds[i].Doc)
	}
	w.Flush()
	return b.String()
}
