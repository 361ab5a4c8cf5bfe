package launch

import (
	"errors"
	"iter"
	"sync"

	"github.com/evalrun/evalrun/harness/blob"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/parquetlog"
)

// A store is what a run writes to: the journal, the Parquet tables fed from it, and the blobs.
type store struct {
	tables  *parquetlog.Writer
	journal *journal.Journal
	blobs   *blob.Store
	state   *journal.State
}

// openStore opens the store in d, repairs what a crash left, and brings the Parquet tables up to
// date with the journal.
func (r *Ready) openStore(d *rundir.Dir) (_ *store, err error) {
	s := &store{}
	caught := make(chan struct{}) // new entries wait until this is closed, behind the earlier entries
	catchUp := sync.OnceFunc(func() { close(caught) })
	defer func() {
		catchUp()
		if err != nil {
			s.Close()
		}
	}()
	lowWater := int64(0)
	if x := r.Eff.Storage; x != nil {
		lowWater = int64(x.Free)
	}
	// Entries that the journal's recovery writes are passed to the tables once they are open.
	tee := func(es []record.Entry) {
		if <-caught; s.tables != nil {
			s.tables.Add(es)
		}
	}
	if s.journal, err = journal.Open(d.Journal(),
		journal.Options{Run: r.Plan.Run, LowWater: lowWater, Tee: tee}); err != nil {
		return nil, err
	}
	recovered := s.journal.Recovered()
	for _, w := range recovered.Warnings() {
		r.o.Log.Warn("the journal was damaged", "what", w)
	}
	s.state = recovered.State
	if s.tables, err = r.openTables(d, recovered.Seq); err != nil {
		return nil, err
	}
	if from := s.tables.From(); from <= recovered.Seq {
		if err := feed(s.tables, journal.ScanFrom(d.Journal(), from)); err != nil {
			return nil, err
		}
	}
	catchUp()
	if s.blobs, err = blob.Open(d.Blobs(), blob.Options{}); err != nil {
		return nil, err
	}
	return s, nil
}

// openTables opens the tables of d. last is the number of the journal's last entry.
func (r *Ready) openTables(d *rundir.Dir, last int64) (*parquetlog.Writer, error) {
	scan := func(from int64) iter.Seq2[record.Entry, error] { return journal.ScanFrom(d.Journal(), from) }
	o := parquetlog.Options{Log: r.o.Log, Journal: scan, Last: last}
	tables, err := parquetlog.Open(d.Path(), r.Plan, o)
	if err == nil {
		return tables, nil
	}
	r.o.Log.Warn("the tables are made anew from the journal", "err", err)
	if err := parquetlog.Rebuild(d.Path(), r.Plan, scan(1), parquetlog.Options{Log: r.o.Log}); err != nil {
		return nil, err
	}
	return parquetlog.Open(d.Path(), r.Plan, o)
}

// Close closes the journal and then the Parquet tables. The tables are derived data, so their error
// is separate.
func (s *store) Close() (parquet, journal error) {
	if s.journal != nil {
		journal = s.journal.Close()
	}
	if s.tables != nil {
		parquet = s.tables.Close()
	}
	return parquet, journal
}

// feed adds the entries to the tables that they are missing.
func feed(t *parquetlog.Writer, entries iter.Seq2[record.Entry, error]) error {
	from := t.From()
	for e, err := range entries {
		var bad *journal.BadLine
		var missing *journal.Missing
		switch {
		case errors.As(err, &bad), errors.As(err, &missing):
		case err != nil:
			return err
		case e.Seq >= from:
			t.Add([]record.Entry{e})
		}
	}
	return nil
}
