package export

import (
	"encoding/json"
	"io"

	"github.com/evalrun/evalrun/reports/schema"
)

// A Kind is a format that evalrun export can write, selected with --format NAME.
type Kind struct {
	Name string
	Doc  string // one line, for help and completion

	// Arg describes the argument in --format NAME:ARG, such as "FILE"; "" means no argument. The
	// argument is required unless Optional is set. If IsPath is set, it is a path relative to the
	// working directory.
	Arg              string
	Optional, IsPath bool

	// Options is a value of the struct that describes the format's own options, which --set gives:
	// names in json tags, descriptions in doc tags, limits in min, max and enum tags. Nil means no
	// options.
	Options any
	// Paths lists the options that hold paths relative to the working directory.
	Paths []string
	// Check validates the argument and the options together, before anything is opened. It may be
	// nil.
	Check func(arg string, options json.RawMessage) error

	// Open creates the exporter for one export.
	Open func(Setup) (Exporter, error)
}

// A Setup holds the settings of an export from the command line, and the resources that [Export]
// provides.
type Setup struct {
	Arg     string
	Options json.RawMessage // validated, with absolute paths
	// requested tables, in the order of [Tables]; rows of others are omitted
	Tables []string

	// Create creates a file at a path within the export's directory. [Export] buffers and closes
	// the files. They get their final names when the export is complete, so that an incomplete file
	// is never mistaken for a complete one.
	Create func(name string) (io.Writer, error)
}

// An Exporter writes one run in its format. Its methods are not called concurrently.
type Exporter interface {
	// Write writes rows: first all arms and tasks, then the others in journal order, a few at a
	// time. All rows together may not fit in memory. rows is reused after Write returns.
	Write(rows *Rows) error
	// Close writes buffered data after the last Write. It is not called after an error.
	Close() error
}

// Rows holds rows of all tables; docs/schema.md describes their columns.
type Rows struct {
	Arms  []schema.Arm
	Tasks []schema.Task
	// one row per decided trial, with later attempts and corrections applied
	Trials   []schema.Trial
	Attempts []schema.Attempt
	Events   []schema.Event
	Calls    []schema.ModelCall
	Scores   []schema.Score
	Tests    []schema.Test
	Changes  []schema.Change
}

// only drops the rows of all tables that are not in the set.
func (r *Rows) only(tables map[string]bool) {
	keep(&r.Arms, tables["arms"])
	keep(&r.Tasks, tables["tasks"])
	keep(&r.Trials, tables["trials"])
	keep(&r.Attempts, tables["attempts"])
	keep(&r.Events, tables["events"])
	keep(&r.Calls, tables["model_calls"])
	keep(&r.Scores, tables["scores"])
	keep(&r.Tests, tables["tests"])
	keep(&r.Changes, tables["changes"])
}

func keep[T any](rows *[]T, wanted bool) {
	if !wanted {
		*rows = nil
	}
}
