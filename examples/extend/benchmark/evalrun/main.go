// Evalrun with the benchmark spelling.
package main

import (
	"example.com/spelling"

	"github.com/evalrun/evalrun/cmd/evalrun/builtin"
	"github.com/evalrun/evalrun/cmd/evalrun/cli"
)

var version string // set by -ldflags "-X main.version=v1.2.3"

func main() {
	kinds := builtin.Kinds()
	kinds.Benchmarks = append(kinds.Benchmarks, spelling.Kind)
	cli.Run(kinds, version)
}
