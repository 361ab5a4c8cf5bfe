// Package recordingstest finds the recordings of the reference for tests.
package recordingstest

import (
	"os"
	"testing"
)

// Dir returns the folder of recordings that EVALRUN_GOLDEN names. It skips the test if the variable
// is not set.
func Dir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("EVALRUN_GOLDEN")
	if dir == "" {
		t.Skip("recordings of the reference are not there; name their folder by EVALRUN_GOLDEN")
	}
	return dir
}
