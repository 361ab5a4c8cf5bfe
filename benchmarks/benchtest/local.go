package benchtest

import (
	"os"
	"testing"

	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Main is the TestMain of packages that use [Local]: the test binary is what runs inside its
// sandboxes.
func Main(m *testing.M) {
	local.Init()
	os.Exit(m.Run())
}

// Local is the driver local. Where it cannot work the test is skipped with the reason, or fails if
// EVALRUN_TEST_LOCAL is set.
func Local(t *testing.T) sandbox.Driver {
	t.Helper()
	d := local.New()
	t.Cleanup(func() { d.Close() })
	if err := d.Probe(t.Context()); err != nil {
		if os.Getenv("EVALRUN_TEST_LOCAL") != "" {
			t.Fatalf("EVALRUN_TEST_LOCAL is set, but: %v", err)
		}
		t.Skipf("no local sandboxes here: %v", err)
	}
	return d
}

// Unisolated is the driver none, for tests that paths are found where the machine's root is not
// "/".
func Unisolated(t *testing.T) sandbox.Driver {
	t.Helper()
	d := local.NewUnisolated()
	t.Cleanup(func() { d.Close() })
	if err := d.Probe(t.Context()); err != nil {
		t.Skipf("no processes here: %v", err)
	}
	return d
}
