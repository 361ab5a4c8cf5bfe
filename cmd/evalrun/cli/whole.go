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

// whole is an error where something is missing from a run's folder that other files of it know of.
func (a *app) whole(d *rundir.Dir) error { return lossError(launch.Whole(d), rel(d.Path())) }

// derived names what is missing and can be made again, for a command that makes nothing.
func (a *app) derived(d *rundir.Dir, path string) {
	if names := launch.Missing(d); len(names) > 0 {
		a.say("missing: %s; nothing is lost by that: evalrun resume %s makes it again from the journal",
			strings.Join(names, ", "), path)
	}
}

// remade names what is missing, for a command that makes it again.
func (a *app) remade(d *rundir.Dir) {
	if names := launch.Missing(d); len(names) > 0 {
		a.say("missing, and made again from the journal: %s", strings.Join(names, ", "))
	}
}

// findings are the damages that a command which only reads has met. It shows what there is, and
// fails at its end.
type findings struct {
	err   error
	n     int
	again string // what plays again those whose kept content is damaged, for the hint; "": nothing is known of them
}

// add notes an error, and says whether it was one of damage.
func (f *findings) add(err error) bool {
	if !lost(err) {
		return false
	}
	if f.n++; f.n <= 20 {
		f.err = errors.Join(f.err, err)
	}
	return true
}

// whole notes what is missing from a run's folder that other files of it know of. The error is one
// of another kind.
func (f *findings) whole(d *rundir.Dir) error {
	if err := launch.Whole(d); err != nil && !f.add(err) {
		return folderError(err)
	}
	return nil
}

// of notes the damages among entries.
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

// A noting reader notes damage that is read.
type noting struct {
	io.ReadCloser
	found *findings
}

func (r noting) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.found.add(err)
	return n, err
}

// after is how the command ends.
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

// inJournal says whether an error is about the journal, and not about blobs alone.
func inJournal(err error) bool {
	return errors.Is(err, journal.ErrLost) || errors.As(err, new(*journal.BadLine)) ||
		errors.As(err, new(*journal.Missing))
}

// lost says whether an error is about parts of a run that are damaged or missing.
func lost(err error) bool {
	return inJournal(err) || errors.Is(err, rundir.ErrDamaged) || errors.Is(err, record.ErrDamaged) ||
		errors.Is(err, record.ErrMissing)
}

// lossError says what can be done about lost or damaged parts of a run; other errors stay as they
// are.
func lossError(err error, path string) error {
	if !lost(err) {
		return err
	}
	return &exitError{ExitInternal, err,
		"put a copy in its place, or play again what is lost: evalrun resume --accept-loss " + path}
}
