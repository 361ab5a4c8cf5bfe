package scores

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/reports/export"
	"github.com/evalrun/evalrun/reports/reporttest"
)

// What is written can be read back, and is what the plan and the journal say.
func TestExport(t *testing.T) {
	dir := t.TempDir()
	o := reporttest.Options{}
	setup := export.Setup{Options: []byte(`{"digits":2}`)}
	files, err := export.Export(dir, &Kind, setup, reporttest.Plan(o), reporttest.Entries(o))
	if err != nil || len(files) != 1 || files[0] != filepath.Join(dir, "scores.csv") {
		t.Fatalf("files %q, %v", files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	plan := reporttest.Plan(o)
	if len(lines) != 1+len(plan.Tasks) || len(lines[0]) != 2+len(plan.Arms) {
		t.Errorf("%d lines of %d columns for %d tasks and %d arms", len(lines), len(lines[0]), len(plan.Tasks),
			len(plan.Arms))
	}
	numbers := 0
	for _, l := range lines[1:] {
		for _, value := range l[2:] {
			if len(value) == len("0.50") {
				numbers++
			}
		}
	}
	if numbers == 0 {
		t.Errorf("no mean in %q", lines)
	}
}
