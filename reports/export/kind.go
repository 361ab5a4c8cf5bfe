package export

import (
	"encoding/json"
	"io"

	"github.com/evalrun/evalrun/reports/schema"
)

// A Kind is a format that evalrun export can write, as --format NAME.
type Kind struct {
	Name string
	Doc  string // one line, for help and completion

	// Arg says what follows the colon of --format NAME:ARG, such as "FILE"; "" for nothing. It must
	// be given unless it is Optional. If IsPath, it is a path relative to the working directory.
	Arg              string
	Optional, IsPath bool

	// Options is a value of the struct that describes the format's own options, which --set gives:
	// their names by tags json, their texts by tags doc, their bounds by tags min, max and enum.
	// Nil: it has none.
	Options any
	// Paths names the options that are paths relative to the working directory.
	Paths []string
	// Check looks at argument and options together, before anything is opened. Nil: nothing to do.
	Check func(arg string, options json.RawMessage) error

	// Open makes the exporter of one export.
	Open func(Setup) (Exporter, error)
}

// A Setup is what the command line says of an export, and what [Export] lends to it.
type Setup struct {
	Arg     string
	Options json.RawMessage // as checked, with absolute paths
	Tables  []string        // the tables that are wanted, in the order of [Tables]; rows of others are left out

	// Create makes a file in the folder of the export, by its path there. Files are buffered and
	// closed by [Export]. They get their names when the export is complete: a half-written one is
	// never taken for a whole one.
	Create func(name string) (io.Writer, error)
}

// An Exporter writes one run in its format. Its methods are called one after another.
type Exporter interface {
	// Write writes rows: at first all arms and tasks, then the others as the journal has them, a
	// few at a time. There may be more of them than memory holds. rows is used again after the
	// return.
	Write(rows *Rows) error
	// Close writes what is left, after the last Write. After an error it is not called.
	Close() error
}

// Rows are rows of all tables; docs/schema.md describes their columns.
type Rows struct {
	Arms     []schema.Arm
	Tasks    []schema.Task
	Trials   []schema.Trial // of decided trials, one of each, as later attempts and corrections left it
	Attempts []schema.Attempt
	Events   []schema.Event
	Calls    []schema.ModelCall
	Scores   []schema.Score
	Tests    []schema.Test
}

// only drops the rows of all tables but these.
func (r *Rows) only(tables map[string]bool) {
	keep(&r.Arms, tables["arms"])
	keep(&r.Tasks, tables["tasks"])
	keep(&r.Trials, tables["trials"])
	keep(&r.Attempts, tables["attempts"])
	keep(&r.Events, tables["events"])
	keep(&r.Calls, tables["model_calls"])
	keep(&r.Scores, tables["scores"])
	keep(&r.Tests, tables["tests"])
}

func keep[T any](rows *[]T, wanted bool) {
	if !wanted {
		*rows = nil
	}
}
