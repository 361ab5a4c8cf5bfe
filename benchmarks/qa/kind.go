package qa

import (
	"github.com/evalrun/evalrun/benchmarks"
)

// Kind is the benchmark's registry entry.
var Kind = benchmarks.Kind{
	Name: "qa", Arg: "FILE", IsPath: true, Options: Options{},
	Doc: "questions and answers in any JSONL, CSV or Parquet file with named columns",
	Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) {
		return New(s.Arg, s.Options)
	},
}
