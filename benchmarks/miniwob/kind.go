package miniwob

import (
	"encoding/json"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// Kind is the benchmark's registry entry.
var Kind = benchmarks.Kind{
	Name: "miniwob", Arg: "FOLDER", Optional: true, IsPath: true, Options: Options{},
	Doc: "MiniWoB++, 125 small web pages; without FOLDER those that evalrun tasks fetch has put into the user's " +
		"folder (docs/miniwob.md)",
	Check: func(_ string, o json.RawMessage) error { return CheckOptions(o) },
	Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) {
		return New(s.Arg, s.Options, web.BrowsersOf(s))
	},
}
