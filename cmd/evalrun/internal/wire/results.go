package wire

import (
	"bytes"
	"context"
	"io"
	"os"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/config"
	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/render"
)

// Results reads what came of a run. Its error is about damaged entries, and comes beside the results of the rest.
func Results(d *rundir.Dir) (*render.Results, error) {
	run, err := d.Run()
	if err != nil {
		return nil, err
	}
	return render.Collect(d.Plan(), run, journal.Control(d.Journal()))
}

// Gates are a configuration's gates as the reports judge them.
func Gates(gs []config.Gate) []render.Gate {
	out := make([]render.Gate, len(gs))
	for i, g := range gs {
		out[i] = render.Gate{Arm: g.Arm, Metric: g.Metric, Than: g.Than, Min: g.Min, Max: g.Max}
	}
	return out
}

// Blobs opens what a run has kept, by its SHA-256, for reading.
func Blobs(d *rundir.Dir) (func(sum string) (io.ReadCloser, error), error) {
	s, err := blob.Open(d.Blobs(), blob.Options{ReadOnly: true, Verify: true})
	if err != nil {
		return nil, err
	}
	return func(sum string) (io.ReadCloser, error) { return s.Open(context.Background(), sum) }, nil
}

// Store writes summary.json and summary.md into a run's folder.
func Store(d *rundir.Dir, s *render.Summary) error {
	var j, m bytes.Buffer
	if err := s.JSON(&j); err != nil {
		return err
	}
	if err := s.Markdown(&m); err != nil {
		return err
	}
	for name, b := range map[string][]byte{"summary.json": j.Bytes(), "summary.md": m.Bytes()} {
		tmp := d.File(name) + ".tmp"
		if err := os.WriteFile(tmp, b, 0o644); err != nil {
			return err
		}
		if err := os.Rename(tmp, d.File(name)); err != nil {
			return err
		}
	}
	return nil
}

// Finish records with which code the program ends.
func Finish(d *rundir.Dir, exit int) error {
	run, err := d.Run()
	if err != nil {
		return err
	}
	run.Exit = &exit
	return d.WriteRun(run)
}
