package benchtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/runtime/docker"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// DockerImage is the image of tests that need a Debian with bash, Python and pytest;
// scripts/test-images makes it.
const DockerImage = "evalrun-test/bookworm:1"

// Docker is the driver docker. The test is skipped with the reason unless EVALRUN_TEST_DOCKER is
// set; then there must be an engine.
func Docker(t *testing.T) sandbox.Driver {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_DOCKER") == "" {
		t.Skip("needs a container engine: set EVALRUN_TEST_DOCKER=1")
	}
	d := docker.New(docker.Options{State: filepath.Join(t.TempDir(), "state")})
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.Probe(t.Context()); err != nil {
		t.Fatalf("EVALRUN_TEST_DOCKER is set, but: %v", err)
	}
	return d
}
