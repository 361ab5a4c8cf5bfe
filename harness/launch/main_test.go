package launch_test

import (
	"os"
	"testing"
)

// TestMain lets the test program act as the process that the example kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv("EVALRUN_EXAMPLE_RUN"); dir != "" {
		begin(dir)
	}
	os.Exit(m.Run())
}
