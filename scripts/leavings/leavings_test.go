package main

import (
	"os"
	"testing"
)

// A sample of the fuzz. Its cases are the same each time; the program is for other seeds, and more
// of them.
func TestSample(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_LOCAL") == "" {
		t.Skip("set EVALRUN_TEST_LOCAL=1 to leave hostile things behind in sandboxes of this machine")
	}
	o := options{cases: 1000, batch: 25, seed: 1, drivers: []string{"local"}, workers: 4, dir: t.TempDir()}
	if testing.Short() {
		o.cases = 120
	}
	if os.Getenv("EVALRUN_TEST_DOCKER") == "1" {
		o.drivers = append(o.drivers, "docker")
	}
	if err := fuzz(t.Context(), o, t.Logf); err != nil {
		t.Error(err)
	}
}
