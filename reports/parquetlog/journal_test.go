package parquetlog

import (
	"testing"

	"github.com/evalrun/evalrun/harness/journal"
	"github.com/evalrun/evalrun/reports/reporttest"
)

// With a real journal: its Tee feeds the writer, and its Scan gives the same rows.
func TestJournal(t *testing.T) {
	o := reporttest.Options{}
	plan := reporttest.Plan(o)
	dir := t.TempDir()
	w, err := Open(dir, plan, Options{})
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir+"/journal", journal.Options{Tee: w.Add, NoSync: true, LowWater: -1, Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	for e := range reporttest.Entries(o) {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want := expected(t, o)
	same(t, "through the Tee", everything(t, dir), want)
	if err := Rebuild(dir, plan, journal.Scan(dir+"/journal"), Options{}); err != nil {
		t.Fatal(err)
	}
	same(t, "rebuilt by Scan", everything(t, dir), want)
}
