package wire

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

// Whole compares a run's journal with what the other files of its folder know of it. The error is a *journal.LossError where something is
// missing. Of a run in which another process works nothing is known: its files are at different moments.
func Whole(d *rundir.Dir) error {
	if busy(d) {
		return nil
	}
	run, err := d.Run()
	if err != nil {
		return err
	}
	losses, err := journal.Verify(d.Journal(), d.Plan().Run, witnesses(d, run)...)
	if err == nil && len(losses) == 0 && !journal.HasMark(d.Journal()) {
		losses, err = strangers(d)
	}
	if err != nil || len(losses) == 0 || busy(d) { // one that has begun meanwhile
		return err
	}
	return &journal.LossError{Losses: losses}
}

// strangers looks for trials that the run's plan does not have: the journal of an older form does not say whose it is.
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
			return []journal.Loss{{File: "control.jsonl", Text: "has the trial " + id + ", which is not in plan.json: one of the two is of another run"}}, nil
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

// witnesses are the files that know how far the journal had come.
func witnesses(d *rundir.Dir, run *record.Run) []journal.Witness {
	ws := []journal.Witness{{File: "run.json", Seq: run.Seq}}
	if seq, file := parquetlog.Last(d.Path()); seq > 0 {
		ws = append(ws, journal.Witness{File: file, Seq: seq})
	}
	var sum struct {
		Run     string
		Decided int
	}
	if data, err := os.ReadFile(d.File("summary.json")); err == nil && json.Unmarshal(data, &sum) == nil && sum.Run == run.Run {
		ws = append(ws, journal.Witness{File: "summary.json", Trials: sum.Decided})
	}
	return ws
}

// repair goes on without what the journal of d has lost, and makes the tables anew.
func (r *Ready) repair(d *rundir.Dir) error {
	run, err := d.Run()
	if err != nil {
		return err
	}
	upTo := int64(0)
	for _, w := range witnesses(d, run) {
		upTo = max(upTo, w.Seq)
	}
	damages, err := journal.Repair(d.Journal(), upTo)
	if err != nil {
		return err
	}
	for _, x := range damages {
		r.o.Log.Warn("going on without what is lost", "what", x.String())
	}
	if len(damages) == 0 {
		return nil
	}
	return parquetlog.Rebuild(d.Path(), r.Plan, journal.Scan(d.Journal()), parquetlog.Options{Log: r.o.Log})
}

// readable leaves out evidence whose blobs are damaged or missing, where that is accepted: its trial is played again.
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

// kept reads the blobs that evidence names.
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
