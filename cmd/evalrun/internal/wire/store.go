package wire

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

// A store is what a run writes to: its journal, from there Parquet, and its blobs.
type store struct {
	tables  *parquetlog.Writer
	journal *journal.Journal
	blobs   *blob.Store
	state   *journal.State
}

// openStore opens d's, repairs what a crash left, and lets Parquet catch up with the journal.
func (r *Ready) openStore(d *rundir.Dir) (_ *store, err error) {
	// Parquet first, since it is told of what the journal's own recovery writes.
	tables, err := parquetlog.Open(d.Path(), r.Plan, parquetlog.Options{Log: r.o.Log})
	if err != nil { // from a newer version, say, or damaged: derived, so made anew
		r.o.Log.Warn("parquet is made anew", "err", err)
		if err = parquetlog.Rebuild(d.Path(), r.Plan, journal.Scan(d.Journal()), parquetlog.Options{Log: r.o.Log}); err == nil {
			tables, err = parquetlog.Open(d.Path(), r.Plan, parquetlog.Options{Log: r.o.Log})
		}
		if err != nil {
			return nil, err
		}
	}
	s := &store{tables: tables}
	caught := make(chan struct{}) // until it is closed, new entries wait behind those of the past
	catchUp := sync.OnceFunc(func() { close(caught) })
	defer func() {
		catchUp()
		if err != nil {
			s.Close()
		}
	}()
	if s.journal, err = journal.Open(d.Journal(), journal.Options{Run: r.Plan.Run, Tee: func(es []record.Entry) { <-caught; tables.Add(es) }}); err != nil {
		return nil, err
	}
	recovered := s.journal.Recovered()
	for _, w := range recovered.Warnings() {
		r.o.Log.Warn("the journal was damaged", "what", w)
	}
	s.state = recovered.State
	if from := tables.From(); from <= recovered.Seq {
		if err := feed(tables, journal.ScanFrom(d.Journal(), from)); err != nil {
			return nil, err
		}
	}
	catchUp()
	if s.blobs, err = blob.Open(d.Blobs(), blob.Options{}); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends the journal, then Parquet, which is derived and whose error is its own.
func (s *store) Close() (parquet, journal error) {
	if s.journal != nil {
		journal = s.journal.Close()
	}
	return s.tables.Close(), journal
}

// feed gives the tables what the journal has and they have not.
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
