// Package export writes a run's rows for programs that do not read Parquet: JSON lines and CSV. The
// columns are those of docs/schema.md. Rows are written as the journal is read; memory does not
// grow with the run.
package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/reports/schema"
)

// Formats that Export writes.
const (
	JSONL = "jsonl" // an object a line; what is null is left out
	CSV   = "csv"   // RFC 4180; lists and maps as JSON; a text that a spreadsheet would take for a formula begins with '
)

// Tables that Export writes, in this order.
var Tables = []string{"trials", "attempts", "events", "model_calls", "scores", "tests", "tasks", "arms"}

// An Incomplete says which entries of the journal have no row in an export that is otherwise
// complete.
type Incomplete struct {
	Errs []error // the first of them
	More int     // so many others
}

func (e *Incomplete) Error() string {
	text := errors.Join(e.Errs...).Error()
	if e.More > 0 {
		text += fmt.Sprintf("\nand %d more", e.More)
	}
	return text
}

func (e *Incomplete) Unwrap() []error { return e.Errs }

// told is how many entries without a row are named.
const told = 20

// Export writes tables of a run into the folder dir, each into a file <table>.<format>; no tables
// means all. entries is gone through twice. Damaged entries make no row; they are the error, an
// [*Incomplete], after everything else has been written.
func Export(dir, format string, tables []string, plan *record.Plan, entries iter.Seq2[record.Entry, error]) (err error) {
	if format != JSONL && format != CSV {
		return fmt.Errorf("export: there is no format %q; there are jsonl and csv", format)
	}
	if len(tables) == 0 {
		tables = Tables
	}
	for _, t := range tables {
		if !slices.Contains(Tables, t) {
			return fmt.Errorf("export: there is no table %q; there are %s", t, strings.Join(Tables, ", "))
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	x := &exporter{dir: dir, format: format, tables: tables}
	defer func() {
		if cerr := x.close(); cerr != nil {
			err = errors.Join(fmt.Errorf("export: %w", cerr), err)
		}
	}()
	if x.err = x.open(); x.err != nil {
		return fmt.Errorf("export: %w", x.err)
	}
	arms, tasks := schema.OfPlan(plan)
	write(x, "arms", arms)
	write(x, "tasks", tasks)

	var damaged Incomplete
	bad := func(err error) {
		if len(damaged.Errs) < told {
			damaged.Errs = append(damaged.Errs, err)
		} else {
			damaged.More++
		}
	}
	later := changed(entries)
	b := schema.NewBuilder(plan.Run)
	var batch schema.Batch
	for e, err := range entries {
		if err != nil {
			bad(err)
			continue
		}
		batch.Reset()
		if err := b.Add(&e, &batch); err != nil {
			bad(err)
		}
		write(x, "trials", later.current(batch.Trials))
		write(x, "attempts", batch.Attempts)
		write(x, "events", batch.Events)
		write(x, "model_calls", batch.Calls)
		write(x, "scores", batch.Scores)
		write(x, "tests", batch.Tests)
		if x.err != nil {
			return fmt.Errorf("export: %w", x.err)
		}
	}
	if damaged.Errs != nil {
		return &damaged
	}
	return nil
}

// A change is what becomes of a trial's row later in the journal.
type change struct {
	last   int64 // the entry that decides it for good
	amends []schema.Amend
}

type changes map[string]*change

// changed finds the trials whose first row is not their last. It remembers these only: trials that
// took more than one attempt, and those that were amended.
func changed(entries iter.Seq2[record.Entry, error]) changes {
	c := changes{}
	b := schema.NewBuilder("")
	var batch schema.Batch
	for e, err := range entries {
		switch e.Kind {
		case record.KindAttempt, record.KindVerdict, record.KindAmend:
		default:
			continue
		}
		batch.Reset()
		if err != nil || b.Add(&e, &batch) != nil {
			continue // the second time will tell
		}
		for _, t := range batch.Trials {
			if t.Attempts > 1 {
				c.of(t.Trial).last = t.Seq
				c.of(t.Trial).amends = nil
			}
		}
		for _, a := range batch.Amends {
			x := c.of(a.Trial)
			x.amends = append(x.amends, a)
		}
	}
	return c
}

func (c changes) of(trial string) *change {
	if c[trial] == nil {
		c[trial] = &change{}
	}
	return c[trial]
}

// current is ts without the rows that are replaced later, the others as they end up.
func (c changes) current(ts []schema.Trial) []schema.Trial {
	out := ts[:0]
	for _, t := range ts {
		if x := c[t.Trial]; x != nil {
			if t.Seq < x.last {
				continue
			}
			for _, a := range x.amends {
				a.Apply(&t)
			}
		}
		out = append(out, t)
	}
	return out
}

// An exporter has a file open for each table. The first error stays.
type exporter struct {
	dir, format string
	tables      []string
	files       map[string]*output
	err         error
}

type output struct {
	f    *os.File
	buf  *bufio.Writer
	path string
	line []byte
}

// open makes the files under other names, so that a half-written export is not taken for one.
func (x *exporter) open() error {
	x.files = map[string]*output{}
	for _, t := range x.tables {
		path := filepath.Join(x.dir, t+"."+x.format)
		f, err := os.Create(path + ".partial")
		if err != nil {
			return err
		}
		o := &output{f: f, buf: bufio.NewWriterSize(f, 64<<10), path: path}
		x.files[t] = o
		if x.format == CSV {
			if _, err := io.WriteString(o.buf, header(t)); err != nil {
				return err
			}
		}
	}
	return nil
}

func write[T any](x *exporter, table string, rs []T) {
	o := x.files[table]
	if o == nil || x.err != nil {
		return
	}
	fs := fieldsOf[T]()
	for i := range rs {
		if x.format == CSV {
			o.line = appendCSV(o.line[:0], fs, &rs[i])
		} else {
			o.line = appendJSON(o.line[:0], fs, &rs[i])
		}
		if _, err := o.buf.Write(o.line); err != nil {
			x.err = err
			return
		}
	}
}

// close completes the files, or removes them after a failure.
func (x *exporter) close() error {
	var errs []error
	for _, o := range x.files {
		err := errors.Join(o.buf.Flush(), o.f.Close())
		if err == nil && x.err == nil {
			err = os.Rename(o.path+".partial", o.path)
		} else {
			os.Remove(o.path + ".partial")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
