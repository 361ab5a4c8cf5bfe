package quickstart

import (
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// Kind is the benchmark's registry entry.
var Kind = benchmarks.Kind{
	Name: "quickstart", Doc: "small tasks of four kinds, some in a browser, that come with evalrun",
	Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) {
		return New().In(web.BrowsersOf(s)), nil
	},
}
