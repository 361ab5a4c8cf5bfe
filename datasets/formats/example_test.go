package formats_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/datasets"
	"github.com/evalrun/evalrun/datasets/formats"
	"github.com/evalrun/evalrun/datasets/table"
)

// A file of rows becomes a source of tasks; a row that makes no task is named with its place.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "capitals.csv")
	if err := os.WriteFile(name, []byte("country,capital\nPeru,Lima\nAtlantis,\nMali,Bamako\n"), 0o644); err != nil {
		log.Fatal(err)
	}

	rows, err := formats.Open(name)
	if err != nil {
		log.Fatal(err)
	}
	source := table.New(rows, func(r table.Row) (datasets.Task, error) {
		f, err := r.Fields()
		if err != nil {
			return datasets.Task{}, err
		}
		country, err := f.Text("country")
		if err != nil {
			return datasets.Task{}, err
		}
		capital, err := f.Text("capital")
		if err == nil && capital == "" {
			err = fmt.Errorf("%s has no capital", country)
		}
		if err != nil {
			return datasets.Task{ID: country}, err
		}
		data, err := json.Marshal(map[string]string{"question": "What is the capital of " + country + "?",
			"answer": capital})
		return datasets.Task{ID: country, Data: data}, err
	})
	for task, err := range source.Tasks(context.Background()) {
		var bad *datasets.BadTask
		if errors.As(err, &bad) {
			fmt.Printf("skipped: %s: %v\n", filepath.Base(bad.Place), bad.Err)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", task.ID, task.Data)
	}
	// Output:
	// Peru: {"answer":"Lima","question":"What is the capital of Peru?"}
	// skipped: capitals.csv:3: Atlantis has no capital
	// Mali: {"answer":"Bamako","question":"What is the capital of Mali?"}
}
