package cli

import (
	"errors"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/wire"
	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/harness/rundir"
)

// whole is an error where something is missing from a run's folder that other files of it know of.
func (a *app) whole(d *rundir.Dir) error { return lossError(wire.Whole(d), rel(d.Path())) }

// lossError says what can be done about lost or damaged parts of a run; other errors stay as they are.
func lossError(err error, path string) error {
	switch {
	case errors.Is(err, journal.ErrLost):
	case errors.Is(err, record.ErrDamaged):
	default:
		return err
	}
	return &exitError{ExitInternal, err, "put a copy in its place, or play again what is lost: evalrun resume --accept-loss " + path}
}
