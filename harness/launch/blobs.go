package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/schema"
)

// sums yields the digests of the blobs that entries refer to, each with its entry.
func sums(run string, entries iter.Seq2[record.Entry, error]) iter.Seq2[string, *record.Entry] {
	return func(yield func(string, *record.Entry) bool) {
		build := schema.NewBuilder(run)
		var b schema.Batch
		for e, err := range entries {
			if err != nil {
				continue
			}
			b.Reset()
			_ = build.Add(&e, &b) // an entry that yields no row refers to no usable blob
			for _, sum := range inEntry(&e, &b) {
				if !yield(sum, &e) {
					return
				}
			}
		}
	}
}

func inEntry(e *record.Entry, b *schema.Batch) (out []string) {
	add := func(sum string) {
		if sum != "" {
			out = append(out, sum)
		}
	}
	for _, x := range b.Events {
		for _, f := range x.Blobs {
			add(f.SHA256)
		}
	}
	switch e.Kind {
	case record.KindCall:
		var c record.Call
		if json.Unmarshal(e.Data, &c) == nil {
			add(c.RawBlob)
			add(c.Sent)
		}
	case record.KindStage:
		var s record.Stage
		if json.Unmarshal(e.Data, &s) == nil {
			add(s.GoalBlob)
		}
	case record.KindEvidence:
		var ev record.Evidence
		if json.Unmarshal(e.Data, &ev) != nil {
			break
		}
		add(ev.Blob)
		var data benchmarks.Evidence
		if json.Unmarshal(ev.Data, &data) == nil {
			for _, name := range slices.Sorted(maps.Keys(data.Files)) {
				add(data.Files[name].SHA256)
			}
		}
	case record.KindVerdict:
		var v record.Verdict
		if json.Unmarshal(e.Data, &v) != nil {
			break
		}
		if v.Error != nil {
			add(v.Error.Detail)
		}
		for _, i := range v.Images {
			add(i.Log)
		}
	}
	return out
}

// named describes an entry of control.jsonl or of the first events file that refers to a blob, or
// returns "".
func named(d *rundir.Dir) string {
	for _, entries := range []iter.Seq2[record.Entry, error]{journal.Control(d.Journal()),
		journal.Events(d.Journal(), 1)} {
		for _, e := range sums(d.Plan().Run, entries) {
			return fmt.Sprintf("entry %d of the journal", e.Seq)
		}
	}
	return ""
}

// Verify reads all of a run's journal and blobs, and yields an error for each damaged or missing
// part.
func Verify(d *rundir.Dir) iter.Seq[error] {
	return func(yield func(error) bool) {
		store, err := blob.Open(d.Blobs(), blob.Options{ReadOnly: true})
		if err != nil {
			yield(err)
			return
		}
		entries := func(each func(record.Entry, error) bool) {
			for e, err := range journal.Scan(d.Journal()) {
				if err != nil && !yield(err) {
					return
				}
				if !each(e, err) {
					return
				}
			}
		}
		seen := map[string]bool{}
		for sum, e := range sums(d.Plan().Run, entries) {
			if seen[sum] {
				continue
			}
			seen[sum] = true
			err := store.Check(sum)
			var ev record.Evidence
			if err == nil && e.Kind == record.KindEvidence && json.Unmarshal(e.Data, &ev) == nil && ev.Blob == sum {
				err = kept([]record.Evidence{ev}, store) // the evidence in this blob refers to further blobs
			}
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w: %w", record.ErrMissing, err)
			}
			if err != nil && !yield(fmt.Errorf("journal entry %d (%s of trial %s): %w", e.Seq, e.Kind, e.Trial, err)) {
				return
			}
		}
	}
}
