package cli

import (
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
)

// whole returns an error if files are missing from a run's directory that its other files refer to.
func (a *app) whole(d *rundir.Dir) error { return lossError(launch.Whole(d), rel(d.Path())) }

// derived reports missing files that can be recreated. It is used by commands that do not recreate
// them.
func (a *app) derived(d *rundir.Dir, path string) {
	if names := launch.Missing(d); len(names) > 0 {
		a.say("missing: %s; nothing is lost by that: evalrun resume %s makes it again from the journal",
			strings.Join(names, ", "), path)
	}
}

// remade reports missing files that the command recreates.
func (a *app) remade(d *rundir.Dir) {
	if names := launch.Missing(d); len(names) > 0 {
		a.say("missing, and made again from the journal: %s", strings.Join(names, ", "))
	}
}

// findings collects the damage found by a command that only reads. The command shows what is
// readable and fails at its end.
type findings struct {
	err error
	n   int
	// command that reruns the trials with damaged content, for the hint; "" if there are none
	again string
}

// add records an error if it is about damage, and reports whether it was.
func (f *findings) add(err error) bool {
	if !lost(err) {
		return false
	}
	if f.n++; f.n <= 20 {
		f.err = errors.Join(f.err, err)
	}
	return true
}

// whole records missing files that other files of the run's directory refer to. It returns only
// errors of other kinds.
func (f *findings) whole(d *rundir.Dir) error {
	if err := launch.Whole(d); err != nil && !f.add(err) {
		return folderError(err)
	}
	return nil
}

// of passes entries through and records damage among them.
func (f *findings) of(entries iter.Seq2[record.Entry, error]) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for e, err := range entries {
			f.add(err)
			if !yield(e, err) {
				return
			}
		}
	}
}

// blobs returns a function that opens the run's content, and records damage of it.
func (f *findings) blobs(d *rundir.Dir) (func(sum string) (io.ReadCloser, error), error) {
	open, err := launch.Blobs(d)
	if err != nil {
		return nil, err
	}
	return func(sum string) (io.ReadCloser, error) {
		r, err := open(sum)
		if err != nil {
			f.add(err)
			return nil, err
		}
		return noting{r, f}, nil
	}, nil
}

// noting is a reader that records damage found while reading.
type noting struct {
	io.ReadCloser
	found *findings
}

func (r noting) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.found.add(err)
	return n, err
}

// after returns the final error of the command.
func (f *findings) after(err error, path string) error {
	if f.err == nil || err != nil && !lost(err) && codeOf(err) == ExitInternal {
		return err
	}
	err = lossError(f.err, path)
	var x *exitError
	if f.again != "" && !inJournal(f.err) && !errors.Is(f.err, rundir.ErrDamaged) && errors.As(err, &x) {
		x.hint = "put a copy in its place, or play again what is lost: evalrun rerun " + path + " --trial " + f.again
	}
	return err
}

// inJournal reports whether an error concerns the journal rather than only blobs.
func inJournal(err error) bool {
	return errors.Is(err, journal.ErrLost) || errors.As(err, new(*journal.BadLine)) ||
		errors.As(err, new(*journal.Missing))
}

// lost reports whether an error means that parts of a run are damaged or missing.
func lost(err error) bool {
	return inJournal(err) || errors.Is(err, rundir.ErrDamaged) || errors.Is(err, record.ErrDamaged) ||
		errors.Is(err, record.ErrMissing)
}

// lossError adds a hint to an error about lost or damaged parts of a run. It returns other errors
// unchanged.
func lossError(err error, path string) error {
	if !lost(err) {
		return err
	}
	return &exitError{ExitInternal, err,
		"put a copy in its place, or play again what is lost: evalrun resume --accept-loss " + path}
}
