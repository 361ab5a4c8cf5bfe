package plan_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/benchmarks/qa"
	"github.com/evalrun/evalrun/harness/plan"
	"github.com/evalrun/evalrun/harness/record"
)

// A plan is tasks × arms × repeats. It holds the tasks; its trials are generated on demand.
func ExampleBuild() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "capitals.jsonl")
	rows := `{"id":"peru","question":"Capital of Peru?","answer":"Lima"}
{"id":"mali","question":"Capital of Mali?","answer":"Bamako"}
{"id":"oman","question":"Capital of Oman?","answer":"Muscat"}
`
	if err := os.WriteFile(name, []byte(rows), 0o644); err != nil {
		log.Fatal(err)
	}
	bench, err := qa.New(name, json.RawMessage(`{"name":"capitals"}`))
	if err != nil {
		log.Fatal(err)
	}

	p, err := plan.Build(context.Background(), plan.Spec{
		Run: "demo", Seed: 1, Repeats: 2,
		Arms:    []record.Arm{{ID: "a", Name: "careful"}, {ID: "b", Name: "terse"}},
		Benches: []plan.Bench{{Benchmark: bench, Spec: "qa:" + name, Select: plan.Selection{IDs: []string{"!oman"}}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range p.Tasks {
		fmt.Println(t.Benchmark, t.ID)
	}
	fmt.Println(plan.Trials(p), "trials")
	// Output:
	// capitals peru
	// capitals mali
	// 8 trials
}
