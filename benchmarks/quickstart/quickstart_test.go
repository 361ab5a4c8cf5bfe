package quickstart

import (
	"testing"

	"github.com/evalrun/evalrun/benchmarks/benchtest"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

func TestSuite(t *testing.T) {
	benchtest.Run(t, benchtest.Suite{Benchmark: New(), Driver: benchtest.Local(t), Want: 25})
}
