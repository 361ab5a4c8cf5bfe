// Package datasets is where tasks come from: a [Source] yields [Task] values, a task that cannot be
// read being a value too, so that the rest still runs. Readers of file formats live in folders
// below it. It imports the standard library only.
package datasets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
)

// A Task is one problem of a benchmark, with what its grader needs. It is not changed after it was
// yielded.
type Task struct {
	ID      string // unique in its source; hostile (may hold anything but NUL)
	Digest  string // identity of the content (record.TaskDigest gives the usual form)
	Cluster string // tasks that are not independent (same passage, repository, site) share one; "": its own
	Tags    []string
	Fields  map[string]string // for filters: difficulty=hard
	Data    json.RawMessage   // as its benchmark understands it
	Files   fs.FS             // files that belong to it; nil: none
	// IDs of its source that have to be played before it, as far as they are played at all: they
	// share a state of the world
	After []string

	Warnings []string // what is odd about it, with its place (an unknown key, say); it can be played all the same
}

// A Source yields tasks in a fixed order.
type Source interface {
	// Tasks yields each task once. A task that cannot be read is yielded as an error, a *[BadTask]
	// when it is known which one; the sequence goes on. An error of the whole source (no such file)
	// is yielded and ends it.
	Tasks(ctx context.Context) iter.Seq2[Task, error]
	// Task reads one task again. It costs about one task's work, however large the source is.
	Task(ctx context.Context, id string) (Task, error)
}

// ErrNoTask: the source has no task of this ID.
var ErrNoTask = errors.New("no such task")

// A BadTask is a task that cannot be read.
type BadTask struct {
	ID    string // as far as it is known
	Place string // "questions.jsonl:17"
	Err   error
}

func (e *BadTask) Error() string {
	switch {
	case e.Place == "":
		return fmt.Sprintf("task %q: %v", e.ID, e.Err)
	case e.ID == "":
		return fmt.Sprintf("%s: %v", e.Place, e.Err)
	}
	return fmt.Sprintf("%s: task %q: %v", e.Place, e.ID, e.Err)
}

func (e *BadTask) Unwrap() error { return e.Err }

// A Fatal error means that the source as a whole cannot be used (no such file, a missing column,
// two tasks of one ID): a run with it must not begin.
type Fatal struct {
	Place string
	Err   error
}

func (e *Fatal) Error() string { return fmt.Sprintf("%s: %v", e.Place, e.Err) }
func (e *Fatal) Unwrap() error { return e.Err }
