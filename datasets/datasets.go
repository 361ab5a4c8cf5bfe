// Package datasets defines where tasks come from. A [Source] yields [Task] values; a task that
// cannot be read is yielded as an error, so that the other tasks still run. Readers of file formats
// are in the packages below it. It imports only the standard library.
package datasets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
)

// A Task is one problem of a benchmark, including what its grader needs. It is immutable after it
// was yielded.
type Task struct {
	ID      string // unique in its source; untrusted, may contain anything but NUL
	Digest  string // identifies the content (record.TaskDigest returns the usual form)
	Cluster string // shared by tasks that are not independent (same passage, repository, site); "" if independent
	Tags    []string
	Fields  map[string]string // for filters: difficulty=hard
	Data    json.RawMessage   // interpreted by the benchmark
	Files   fs.FS             // files of the task; may be nil
	// After lists IDs of tasks of the source that must run before this one, if they run at all,
	// because they share state.
	After []string

	Warnings []string // oddities with their position, such as an unknown key; the task can run nevertheless
}

// A Source yields tasks in a fixed order.
type Source interface {
	// Tasks yields each task once. A task that cannot be read is yielded as an error, a *[BadTask]
	// if the task is known; the sequence continues. An error of the whole source (no such file) is
	// yielded and ends the sequence.
	Tasks(ctx context.Context) iter.Seq2[Task, error]
	// Task reads one task again. Its cost is that of one task, however large the source is.
	Task(ctx context.Context, id string) (Task, error)
}

// ErrNoTask reports that the source has no task with this ID.
var ErrNoTask = errors.New("no such task")

// A BadTask is the error for a task that cannot be read.
type BadTask struct {
	ID    string // may be empty if not known
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
// two tasks with one ID), so a run with it must not start.
type Fatal struct {
	Place string
	Err   error
}

func (e *Fatal) Error() string { return fmt.Sprintf("%s: %v", e.Place, e.Err) }
func (e *Fatal) Unwrap() error { return e.Err }
