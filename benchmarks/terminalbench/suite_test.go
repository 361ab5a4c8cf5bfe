package terminalbench

import (
	"testing"

	"github.com/evalrun/evalrun/benchmarks/benchtest"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

// The tasks of testdata have what v1's tasks have: one machine and two, a user of the image's own,
// solution.sh and solution.yaml, old and new forms of task.yaml, three parsers.
func TestSuite(t *testing.T) {
	b, err := New("testdata/tasks", nil)
	if err != nil {
		t.Fatal(err)
	}
	benchtest.Run(t, benchtest.Suite{Benchmark: b, Driver: benchtest.Docker(t), Want: 4})
}
