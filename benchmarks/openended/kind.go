package openended

import (
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// Kind is the benchmark's registry entry.
var Kind = benchmarks.Kind{
	Name: "openended", Arg: "URL", Options: Options{},
	Doc: "a page and a goal, and nobody who grades: for trying things out",
	Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) {
		return New(s.Arg, s.Options, web.BrowsersOf(s))
	},
}
