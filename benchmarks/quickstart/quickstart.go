// Package quickstart is the benchmark that comes with evalrun: small but real tasks of four kinds
// (write a function, work in a shell, answer a question, work in a browser). It serves to see a
// first run, to try an agent, and to test evalrun itself. It is written in the format of custom
// benchmarks and is the worked example for it: see suite/tasks.yaml.
package quickstart

import (
	"embed"
	"io/fs"

	"github.com/evalrun/evalrun/benchmarks/tasks"
)

//go:embed all:suite
var suite embed.FS

// New returns the benchmark.
func New() *tasks.Benchmark {
	sub, err := fs.Sub(suite, "suite")
	if err != nil {
		panic(err) // "suite" is a valid path
	}
	return tasks.FromFS("quickstart", sub, "tasks.yaml")
}
