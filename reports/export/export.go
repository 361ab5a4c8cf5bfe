// Package export writes a run's rows in forms that other programs read. A form is a [Kind]; those
// of evalrun itself, [JSONL] and [CSV], write a file for each table. The columns are those of
// docs/schema.md. Rows are written as the journal is read; memory does not grow with the run.
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

// Tables are the tables of a run, in the order of docs/schema.md.
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

// Export writes a run into the folder dir as s says, s.Create apart; no s.Tables means all. It
// returns the files that it has written. entries is gone through twice. Damaged entries make no
// row; they are the error, an [*Incomplete], after everything else has been written.
func Export(dir string, k *Kind, s Setup, plan *record.Plan,
	entries iter.Seq2[record.Entry, error]) (files []string, err error) {
	wanted := map[string]bool{}
	for _, t := range s.Tables {
		if !slices.Contains(Tables, t) {
			return nil, fmt.Errorf("export: there is no table %q; there are %s", t, strings.Join(Tables, ", "))
		}
		wanted[t] = true
	}
	s.Tables = slices.DeleteFunc(slices.Clone(Tables), func(t string) bool { return len(wanted) > 0 && !wanted[t] })
	for _, t := range s.Tables {
		wanted[t] = true
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	out := &output{dir: dir}
	var damaged *Incomplete
	defer func() {
		cerr := out.close(err == nil)
		if cerr == nil && err == nil {
			files = out.names()
			if damaged != nil {
				err = damaged
			}
			return
		}
		err = fmt.Errorf("export: %w", errors.Join(cerr, err))
	}()
	s.Create = out.create
	x, err := k.Open(s)
	if err != nil {
		return nil, err
	}
	rows := new(Rows)
	rows.Arms, rows.Tasks = schema.OfPlan(plan)
	rows.only(wanted)
	if err := x.Write(rows); err != nil {
		return nil, err
	}
	bad := func(err error) {
		if damaged == nil {
			damaged = new(Incomplete)
		}
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
		*rows = Rows{Trials: later.current(batch.Trials), Attempts: batch.Attempts, Events: batch.Events,
			Calls: batch.Calls, Scores: batch.Scores, Tests: batch.Tests}
		rows.only(wanted)
		if err := x.Write(rows); err != nil {
			return nil, err
		}
	}
	return nil, x.Close()
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

// An output is the files of an export. They have other names until it is complete.
type output struct {
	dir   string
	files []*file
}

type file struct {
	*bufio.Writer
	f    *os.File
	name string // below the folder
}

const partial = ".partial"

func (o *output) create(name string) (io.Writer, error) {
	name = filepath.Clean(name)
	if !filepath.IsLocal(name) || name == "." {
		return nil, fmt.Errorf("%q is no name of a file below the folder of the export", name)
	}
	if slices.Contains(o.names(), filepath.Join(o.dir, name)) {
		return nil, fmt.Errorf("the file %s is written twice", name)
	}
	path := filepath.Join(o.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	f, err := os.Create(path + partial)
	if err != nil {
		return nil, err
	}
	x := &file{Writer: bufio.NewWriterSize(f, 64<<10), f: f, name: name}
	o.files = append(o.files, x)
	return x.Writer, nil
}

func (o *output) names() (out []string) {
	for _, x := range o.files {
		out = append(out, filepath.Join(o.dir, x.name))
	}
	return out
}

// close gives the files their names if all of them are whole, and removes them otherwise.
func (o *output) close(whole bool) error {
	var errs []error
	for _, x := range o.files {
		errs = append(errs, x.Flush(), x.f.Close())
	}
	err := errors.Join(errs...)
	whole = whole && err == nil
	for _, path := range o.names() {
		if !whole {
			os.Remove(path + partial)
		} else if rerr := os.Rename(path+partial, path); rerr != nil {
			err, whole = errors.Join(err, rerr), false
			os.Remove(path + partial)
		}
	}
	return err
}
