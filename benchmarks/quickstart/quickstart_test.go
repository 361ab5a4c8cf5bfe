package quickstart

import (
	"testing"

	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/datasets"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

func TestSuite(t *testing.T) {
	benchtest.Run(t, benchtest.Suite{Benchmark: New(), Driver: benchtest.Local(t), Want: 25})
}

// Without isolation the tasks work too. The service is left out: its port would be this machine's.
func TestUnisolated(t *testing.T) {
	benchtest.Run(t, benchtest.Suite{Benchmark: New(), Driver: benchtest.Unisolated(t), Tasks: func(task datasets.Task) bool { return task.ID != "service" }})
}
