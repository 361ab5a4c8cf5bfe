package webarena

import (
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// Kinds are the registry entries of the benchmarks.
var Kinds = []benchmarks.Kind{
	kind(WebArena, "tasks of WebArena on your own sites: test.raw.json (docs/webarena.md)"),
	kind(Lite, "the 165 tasks of WebArena Lite: test_webarena_lite.raw.json (docs/webarena.md)"),
	kind(Visual, "tasks of VisualWebArena: the file of all, or a folder of test_*.raw.json (docs/webarena.md)"),
}

func kind(d Dialect, doc string) benchmarks.Kind {
	return benchmarks.Kind{
		Name: string(d), Doc: doc, Arg: "FILE", IsPath: true, Options: Options{},
		Paths: []string{"images", "reset.command[0]"},
		Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) {
			return New(d, s.Arg, s.Options, web.BrowsersOf(s), s.Getenv)
		},
	}
}
