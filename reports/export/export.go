// Package export writes a run's rows in formats for other programs. A format is a [Kind]; the
// built-in ones, [JSONL] and [CSV], write one file per table. The columns are described in
// docs/schema.md. Rows are written while the journal is read; memory use does not depend on the
// size of the run.
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

// Tables lists the tables of a run, in the order of docs/schema.md.
var Tables = []string{"trials", "attempts", "events", "model_calls", "scores", "tests", "changes", "tasks", "arms"}

// An Incomplete reports the journal entries that have no row in an otherwise complete export.
type Incomplete struct {
	Errs []error // the first errors
	More int     // number of further errors
}

func (e *Incomplete) Error() string {
	text := errors.Join(e.Errs...).Error()
	if e.More > 0 {
		text += fmt.Sprintf("\nand %d more", e.More)
	}
	return text
}

func (e *Incomplete) Unwrap() []error { return e.Errs }

// told is the maximum number of errors kept in an Incomplete.
const told = 20

// Export writes a run to the directory dir. It uses all fields of s except s.Create; an empty
// s.Tables means all tables. It returns the files that it has written. It iterates over entries
// twice. Damaged entries give no row; after everything else has been written they are reported as
// an [*Incomplete].
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
	if err == nil && x == nil {
		err = fmt.Errorf("format %s: its Open returned neither a value nor an error", k.Name)
	}
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
			Calls: batch.Calls, Scores: batch.Scores, Tests: batch.Tests, Changes: batch.Changes}
		rows.only(wanted)
		if err := x.Write(rows); err != nil {
			return nil, err
		}
	}
	return nil, x.Close()
}

// A change describes later changes of a trial's row in the journal.
type change struct {
	last   int64 // the entry with the final verdict
	amends []schema.Amend
}

type changes map[string]*change

// changed finds the trials whose first row is not their last. It keeps only those in memory: trials
// with more than one attempt, and amended ones.
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
			continue // reported in the second pass
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

// current returns ts without the rows that are replaced later, and with amendments applied to the
// others.
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

// An output is the set of files of an export. They have temporary names until the export is
// complete.
type output struct {
	dir   string
	files []*file
}

type file struct {
	*bufio.Writer
	f    *os.File
	name string // relative to the directory
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

// close renames the files to their final names if whole is set and none has failed; otherwise it
// removes them.
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
