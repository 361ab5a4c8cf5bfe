package spelling

import "github.com/evalrun/evalrun/benchmarks"

// Options of the benchmark, as a configuration gives them.
type Options struct {
	Instruction string `json:"instruction,omitempty" doc:"What comes before the text; default: Correct the spelling."`
}

// Kind is the benchmark's entry in a registry.
var Kind = benchmarks.Kind{
	Name: "spelling", Doc: "texts with spelling mistakes, in a JSON-lines file",
	Arg: "FILE", IsPath: true, Options: Options{},
	Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) { return New(s.Arg, s.Options) },
}
