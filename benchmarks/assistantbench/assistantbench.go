// Package assistantbench implements AssistantBench, questions whose answers have to be found on the
// open web, and its scorer. The questions are read from the user's copy of the published files.
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

// BrowserGym's settings.
const (
	Actions  = "assistantbench" // the subset of actions
	MaxSteps = 30
	Start    = "https://google.com"
	Locale   = "en-US"
	TimeZone = "America/New_York"
)

// A Question is the data of a task.
type Question struct {
	ID     string `json:"id"` // published ID
	Task   string `json:"task"`
	Answer string `json:"answer"` // "" if not published
}

// Source returns the questions of a file with the columns task, answer, id and optionally
// difficulty. split is "validation" or "test". Task IDs consist of the split and the row number.
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
