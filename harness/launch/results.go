package launch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/internal/fsutil"
	"github.com/evalrun/evalrun/reports/text"
)

// Results reads the results of a run. An error reports damaged entries; the results then cover the
// rest.
func Results(d *rundir.Dir) (*text.Results, error) {
	run, err := d.Run()
	if err != nil {
		return nil, err
	}
	c, err := judgingOf(d.Plan())
	if err != nil {
		return nil, err
	}
	res, err := text.Collect(d.Plan(), run, journal.Control(d.Journal()))
	res.Success = c.Success
	return res, err
}

// Trial yields the entries of one trial, with goals and evidence loaded from their blobs. A missing
// or damaged blob is yielded as an error with its entry.
func Trial(d *rundir.Dir, id string) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		open, err := Blobs(d)
		if err != nil {
			yield(record.Entry{}, err)
			return
		}
		for e, err := range journal.Trial(d.Journal(), id) {
			if err == nil {
				var missing error
				if e.Data, missing = whole(&e, open); missing != nil && !yield(record.Entry{}, missing) {
					return
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// whole returns an entry's data with the blob it refers to put in place.
func whole(e *record.Entry, open func(sum string) (io.ReadCloser, error)) (json.RawMessage, error) {
	read := func(sum string) ([]byte, error) {
		r, err := open(sum)
		if err != nil {
			return nil, fmt.Errorf("journal entry %d: %w", e.Seq, err)
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("journal entry %d: %w", e.Seq, err)
		}
		return b, nil
	}
	var st record.Stage
	var ev record.Evidence
	switch {
	case e.Kind == record.KindStage && json.Unmarshal(e.Data, &st) == nil && st.GoalBlob != "":
		b, err := read(st.GoalBlob)
		if err != nil {
			return e.Data, err
		}
		st.Goal, st.GoalBlob = string(b), ""
		return json.Marshal(st)
	case e.Kind == record.KindEvidence && json.Unmarshal(e.Data, &ev) == nil && ev.Blob != "":
		b, err := read(ev.Blob)
		if err != nil {
			return e.Data, err
		}
		ev.Data, ev.Blob = b, ""
		return json.Marshal(ev)
	}
	return e.Data, nil
}

// Summary summarizes results and checks them against the gates of the run's configuration. path is
// the run's folder as used in commands.
func Summary(res *text.Results, path string) (*text.Summary, error) {
	c, err := judgingOf(res.Plan)
	if err != nil {
		return nil, err
	}
	var gates []text.Gate
	for _, g := range c.Gates {
		gates = append(gates, text.Gate{Arm: g.Arm, Metric: g.Metric, Than: g.Than, Min: g.Min, Max: g.Max})
	}
	s := res.Summary(path)
	s.Gates = res.Gates(gates)
	return s, nil
}

// judging is the part of a configuration that says how results are judged.
type judging struct {
	Success *float64      `json:"success"`
	Gates   []config.Gate `json:"gates"`
}

func judgingOf(p *record.Plan) (c judging, err error) {
	if len(p.Config) > 0 { // a plan made by another program may have no configuration
		if err = json.Unmarshal(p.Config, &c); err != nil {
			err = fmt.Errorf("plan.json: its configuration: %w", err)
		}
	}
	return c, err
}

// Blobs returns a function that opens the run's blobs for reading by SHA-256.
func Blobs(d *rundir.Dir) (func(sum string) (io.ReadCloser, error), error) {
	s, err := blob.Open(d.Blobs(), blob.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return func(sum string) (io.ReadCloser, error) { return s.Open(context.Background(), sum) }, nil
}

// Store writes summary.json and summary.md to a run's folder.
func Store(d *rundir.Dir, s *text.Summary) error {
	var j, m bytes.Buffer
	if err := s.JSON(&j); err != nil {
		return err
	}
	if err := s.Markdown(&m); err != nil {
		return err
	}
	for name, b := range map[string][]byte{"summary.json": j.Bytes(), "summary.md": m.Bytes()} {
		if err := fsutil.WriteFile(d.File(name), b); err != nil {
			return err
		}
	}
	return nil
}

// Finish records the program's exit code in run.json.
func Finish(d *rundir.Dir, exit int) error {
	run, err := d.Run()
	if err != nil {
		return err
	}
	run.Exit = &exit
	return d.WriteRun(run)
}
