// Package assistantbench is AssistantBench: questions whose answers have to be found on the open
// web, and its scorer. Questions come from the user's copy of the published files.
package assistantbench

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/table"
	"github.com/evalrun/evalrun/harness/record"
)

// How BrowserGym plays them.
const (
	Actions  = "assistantbench" // the subset of actions
	MaxSteps = 30
	Start    = "https://google.com"
	Locale   = "en-US"
	TimeZone = "America/New_York"
)

// A Question is a task's data.
type Question struct {
	ID     string `json:"id"` // the published one
	Task   string `json:"task"`
	Answer string `json:"answer"` // "" where it is not published
}

// Source reads the rows of a file: task, answer, id, and difficulty where it is there. split is
// "validation" or "test"; IDs are the split and the row's number.
func Source(f table.File, split string) datasets.Source {
	return table.New(f, func(r table.Row) (datasets.Task, error) {
		fields, err := r.Fields()
		if err != nil {
			return datasets.Task{}, err
		}
		var q Question
		for name, into := range map[string]*string{"task": &q.Task, "id": &q.ID, "answer": &q.Answer} {
			if !fields.Has(name) {
				if name == "answer" {
					continue // not published
				}
				return datasets.Task{}, fields.Missing(name)
			}
			if *into, err = fields.Text(name); err != nil {
				return datasets.Task{}, fmt.Errorf("%s: %w", name, err)
			}
		}
		data, err := json.Marshal(q)
		if err != nil {
			return datasets.Task{}, err
		}
		t := datasets.Task{ID: split + "." + strconv.FormatInt(r.Number, 10), Tags: []string{web.Tag, split},
			Fields: map[string]string{"split": split, "original_id": q.ID}, Data: data}
		if t.Digest, err = record.TaskDigest("assistantbench", t.ID, q); err != nil {
			return datasets.Task{}, err
		}
		if fields.Has("difficulty") {
			if t.Fields["difficulty"], err = fields.Text("difficulty"); err != nil {
				return datasets.Task{}, fmt.Errorf("difficulty: %w", err)
			}
		}
		return t, nil
	})
}
