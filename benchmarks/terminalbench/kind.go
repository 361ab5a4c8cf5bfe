package terminalbench

import (
	"io/fs"

	"github.com/evalrun/evalrun/benchmarks"
)

// Kind is the benchmark's entry in a registry.
var Kind = benchmarks.Kind{
	Name: "terminalbench", Arg: "FOLDER", IsPath: true, Options: Options{},
	Doc:       "tasks of Terminal-Bench v1 (task.yaml), one or a folder of them (docs/harbor.md)",
	Recognise: func(fsys fs.FS, name string) bool { return benchmarks.Marked(fsys, name, "task.yaml") },
	Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) {
		return New(s.Arg, s.Options)
	},
}
