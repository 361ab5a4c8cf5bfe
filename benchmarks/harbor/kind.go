package harbor

import (
	"io/fs"

	"github.com/evalrun/evalrun/benchmarks"
)

// Kind is the benchmark's entry in a registry.
var Kind = benchmarks.Kind{
	Name: "harbor", Arg: "PATH", IsPath: true, Options: Options{},
	Paths: []string{"root", "cache", "extra_instructions"},
	Doc: "tasks of the Harbor format: a task's folder, a folder of them, a dataset.toml or registry.json " +
		"(docs/harbor.md)",
	Recognise: func(fsys fs.FS, name string) bool {
		return benchmarks.Marked(fsys, name, "task.toml", "dataset.toml", "registry.json")
	},
	Open: func(s benchmarks.Setup) (benchmarks.Benchmark, error) {
		return New(s.Arg, s.Options)
	},
}
