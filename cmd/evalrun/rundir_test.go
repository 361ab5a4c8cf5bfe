package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/harness/record"
)

// Tests of runs that are killed, or that run beside others, have the run folder dir/out.

// journalOf returns what is complete in a run's journal, in order.
func journalOf(dir string) (all []record.Entry) {
	names, _ := filepath.Glob(filepath.Join(dir, "out/journal/events/*.jsonl"))
	for _, name := range append([]string{filepath.Join(dir, "out/journal/control.jsonl")}, names...) {
		text, _ := os.ReadFile(name)
		for line := range bytes.Lines(text) {
			var l struct{ E record.Entry }
			if json.Unmarshal(line, &l) == nil && l.E.Kind != "" {
				all = append(all, l.E)
			}
		}
	}
	slices.SortFunc(all, func(a, b record.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return all
}

// machineOf returns the name of the first sandbox of an agent, "" if there is none yet.
func machineOf(t *testing.T, dir string) string {
	for _, e := range journalOf(dir) {
		if e.Kind != record.KindMachine {
			continue
		}
		var m record.Machine
		if err := json.Unmarshal(e.Data, &m); err != nil {
			t.Fatal(err)
		}
		return m.ID
	}
	return ""
}

// runOf returns the ID of a run.
func runOf(t *testing.T, dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "out/plan.json"))
	var p struct{ Run string }
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.Run == "" {
		t.Fatalf("plan.json: %v", err)
	}
	return p.Run
}
