package sandboxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The programs that the tests put into sandboxes: how go builds them.
var programs = map[string][]string{
	"helper":        {"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest/helper"},
	"hung":          {"github.com/evalrun/evalrun/runtime/executor/internal/hung"},
	"hung-at-start": {"-ldflags=-X main.start=1", "github.com/evalrun/evalrun/runtime/executor/internal/hung"},
}

// program returns one of the programs. For a user who cannot build, EVALRUN_TEST_PROGRAMS names a
// folder where they lie.
func program(t *testing.T, name string) []byte {
	t.Helper()
	file := filepath.Join(os.Getenv("EVALRUN_TEST_PROGRAMS"), name)
	if os.Getenv("EVALRUN_TEST_PROGRAMS") == "" {
		file = filepath.Join(t.TempDir(), name)
		cmd := exec.Command("go", append([]string{"build", "-buildvcs=false", "-trimpath", "-o", file},
			programs[name]...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=linux")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", name, err, text)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
