package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness"
	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/parquetlog"
)

// Whole compares a run's journal with what the other files of its folder record about it. It
// returns a *journal.LossError if something is missing. It does not check a run in which another
// process is working, because its files are from different moments.
func Whole(d *rundir.Dir) error {
	if busy(d) {
		return nil
	}
	run, err := d.Run()
	if err != nil {
		return err
	}
	losses, err := journal.Verify(d.Journal(), d.Plan().Run, witnesses(d, run)...)
	if err == nil {
		losses = append(losses, gone(d, run)...)
	}
	if err == nil && len(losses) == 0 && !journal.HasMark(d.Journal()) {
		losses, err = strangers(d)
	}
	if err != nil || len(losses) == 0 || busy(d) { // a process may have started meanwhile
		return err
	}
	return &journal.LossError{Losses: losses}
}

// gone lists the files and folders of a run that are missing and cannot be recreated from others.
func gone(d *rundir.Dir, run *record.Run) (out []journal.Loss) {
	seq, _ := parquetlog.Last(d.Path())
	begun := seq > 0 || journal.Begun(d.Journal())
	if run.Run == "" && begun { // run.json is written before the first entry
		out = append(out, journal.Loss{File: "../run.json", Text: "is missing"})
	}
	// The mark is written before run.json. A journal in an older format has no mark, and its
	// run.json has no digest of the plan.
	if (run.Run == "" && begun || run.Plan != "") && !journal.HasMark(d.Journal()) {
		out = append(out, journal.Loss{File: "mark",
			Text: "is missing or damaged, so nothing says how far the journal had come"})
	}
	if _, err := os.Stat(d.Blobs()); os.IsNotExist(err) && begun {
		// A copy may lack an empty folder.
		if by := named(d); by != "" {
			out = append(out, journal.Loss{File: "../blobs", Text: "is missing, and " + by + " names content in it"})
		}
	}
	return out
}

// strangers looks for trials that are not in the run's plan, because a journal in an older format
// does not name its run.
func strangers(d *rundir.Dir) ([]journal.Loss, error) {
	st, err := journal.ReadState(d.Journal())
	if err != nil || st.Len() == 0 {
		return nil, err
	}
	planned := map[string]bool{}
	for j := range plan.Jobs(d.Plan(), nil, nil) {
		planned[j.Trial] = true
	}
	for id := range st.All() {
		if !planned[id] {
			return []journal.Loss{{File: "control.jsonl",
				Text: "has the trial " + id + ", which is not in plan.json: one of the two is of another run"}}, nil
		}
	}
	return nil, nil
}

func busy(d *rundir.Dir) bool {
	if d.Locked() {
		return false
	}
	_, busy := rundir.Holder(d.Path())
	return busy
}

// witnesses returns the files that record how far the journal had come.
func witnesses(d *rundir.Dir, run *record.Run) []journal.Witness {
	ws := []journal.Witness{{File: "run.json", Seq: run.Seq}}
	if seq, file := parquetlog.Last(d.Path()); seq > 0 {
		ws = append(ws, journal.Witness{File: file, Seq: seq})
	}
	if sum := summarized(d); sum != nil {
		ws = append(ws, journal.Witness{File: "summary.json", Trials: sum.Decided})
	}
	return ws
}

// readable leaves out evidence whose blobs are damaged or missing, if the loss is accepted. Its
// trial then runs again.
func (r *Ready) readable(jobs iter.Seq[harness.Job], blobs *blob.Store) iter.Seq[harness.Job] {
	if !r.o.AcceptLoss {
		return jobs
	}
	return func(yield func(harness.Job) bool) {
		for j := range jobs {
			if err := kept(j.Evidence, blobs); err != nil {
				r.o.Log.Warn("evidence is lost, so its trial is played again", "trial", j.Trial, "err", err)
				j.Evidence = nil
			}
			if !yield(j) {
				return
			}
		}
	}
}

// kept reads the blobs that evidence refers to.
func kept(evs []record.Evidence, blobs *blob.Store) error {
	for _, rec := range evs {
		data := []byte(rec.Data)
		if rec.Blob != "" {
			r, err := blobs.Open(context.Background(), rec.Blob)
			if err != nil {
				return err
			}
			data, err = io.ReadAll(r)
			r.Close()
			if err != nil {
				return err
			}
		}
		var ev benchmarks.Evidence
		if err := json.Unmarshal(data, &ev); err != nil {
			return fmt.Errorf("evidence of stage %d: %w", rec.Stage, err)
		}
		for _, name := range slices.Sorted(maps.Keys(ev.Files)) {
			if err := blobs.Check(ev.Files[name].SHA256); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}
