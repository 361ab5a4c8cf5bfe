package assistantbench

import (
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// Kind is the benchmark's registry entry.
var Kind = benchmarks.Kind{
	Name: "assistantbench", Arg: "FILE", IsPath: true, Options: Options{},
	Doc: "questions of AssistantBench, answered on the open web (docs/webarena.md)",
	Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) {
		return New(s.Arg, s.Options, web.BrowsersOf(s))
	},
}
