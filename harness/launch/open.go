package launch

import (
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/harness/rundir"
	"github.com/evalrun/evalrun/reports/parquetlog"
	"github.com/evalrun/evalrun/reports/schema"
)

// Open opens a run's folder for writing and locks it. It refuses a folder written by a later
// version of evalrun before it changes anything.
func Open(path string) (*rundir.Dir, error) {
	d, err := rundir.View(path)
	if err != nil {
		return nil, err
	}
	if _, err := d.Run(); err != nil && !errors.Is(err, rundir.ErrDamaged) { // Whole reports damage
		return nil, err
	}
	if err := journal.CheckVersion(d.Journal()); err != nil {
		return nil, fmt.Errorf("run folder %s: %w", d.Path(), err)
	}
	if v := parquetlog.Version(d.Path()); v > schema.Schema {
		return nil, fmt.Errorf("run folder %s: its tables were %w (evalrun.schema %d, this program writes %d): "+
			"use that one", d.Path(), rundir.ErrNewer, v, schema.Schema)
	}
	return rundir.Open(path)
}
