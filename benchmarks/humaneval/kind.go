package humaneval

import (
	"github.com/evalrun/evalrun/benchmarks"
)

// Kind is the benchmark's registry entry.
var Kind = benchmarks.Kind{
	Name: "humaneval", Arg: "FILE", IsPath: true, Options: Options{},
	Doc: "write a Python function; the published HumanEval.jsonl or .jsonl.gz",
	Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) {
		return New(s.Arg, s.Options)
	},
}
