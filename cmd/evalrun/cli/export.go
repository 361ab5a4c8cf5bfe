package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/internal/suggest"
	"github.com/evalrun/evalrun/reports/export"
)

// formats are what tables are written as.
var formats = []string{export.JSONL, export.CSV}

func (a *app) exportCommand() *cli.Command {
	var format, out, tables string
	return &cli.Command{
		Name:      "export",
		Usage:     "write a run's tables as JSON lines or CSV",
		ArgsUsage: "RUN",
		Description: `Tables: ` + strings.Join(export.Tables, ", ") + `; their columns are in docs/schema.md. The same tables lie in
the run folder as Parquet.

Examples:
   evalrun export out --format csv -o tables
   evalrun export out --format jsonl --tables trials,events -o tables`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "`FORMAT`: " + strings.Join(formats, ", "), Value: export.JSONL, Destination: &format},
			&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "`FOLDER` for the files", Destination: &out},
			&cli.StringFlag{Name: "tables", Usage: "only these `TABLES`", Destination: &tables},
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			path, err := one(cmd, "run folder")
			if err != nil {
				return err
			}
			if out == "" {
				return usage("add -o FOLDER", "export needs a folder to write to")
			}
			if !slices.Contains(formats, format) {
				return usage("formats: "+strings.Join(formats, ", "), "unknown format %q", format)
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
			var f findings
			if err := f.whole(d); err != nil {
				return err
			}
			a.derived(d, path)
			err = export.Export(out, format, only, d.Plan(), journal.Scan(d.Journal()))
			var some *export.Incomplete
			if err != nil && !errors.As(err, &some) {
				return f.after(err, path)
			}
			if some != nil {
				f.add(fmt.Errorf("the files are without what %s does not have:\n%w", rel(d.Journal()), some))
			}
			err = f.after(err, path)
			if err != nil && some == nil {
				return err
			}
			if only == nil {
				only = export.Tables
			}
			for _, t := range only {
				fmt.Fprintln(a.Stdout, filepath.Join(out, t+"."+format))
			}
			return err
		},
	}
}
