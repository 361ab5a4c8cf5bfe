package humaneval

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/benchmarks/benchtest"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// data is a file of the shared test data; the test is skipped where it is not there.
func data(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("EVALRUN_TEST_DATA")
	if dir == "" {
		t.Skip("set EVALRUN_TEST_DATA to a folder that holds " + name)
	}
	return filepath.Join(dir, name)
}

func TestPublished(t *testing.T) {
	b, err := New(data(t, "HumanEval.jsonl.gz"), nil)
	if err != nil {
		t.Fatal(err)
	}
	benchtest.Run(t, benchtest.Suite{Benchmark: b, Driver: benchtest.Local(t), Want: 164})
}
