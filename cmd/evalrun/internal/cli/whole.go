package cli

import (
	"errors"
	"io"
	"iter"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/wire"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
)

// whole is an error where something is missing from a run's folder that other files of it know of.
func (a *app) whole(d *rundir.Dir) error { return lossError(wire.Whole(d), rel(d.Path())) }

// findings are the damages that a command which only reads has met. It shows what there is, and fails at its end.
type findings struct {
	err error
	n   int
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
	return lossError(f.err, path)
}

// lost says whether an error is about parts of a run that are damaged or missing.
func lost(err error) bool {
	return errors.Is(err, journal.ErrLost) || errors.Is(err, record.ErrDamaged) || errors.Is(err, record.ErrMissing) ||
		errors.As(err, new(*journal.BadLine)) || errors.As(err, new(*journal.Missing))
}

// lossError says what can be done about lost or damaged parts of a run; other errors stay as they are.
func lossError(err error, path string) error {
	if !lost(err) {
		return err
	}
	return &exitError{ExitInternal, err, "put a copy in its place, or play again what is lost: evalrun resume --accept-loss " + path}
}
