// Evalrun with the export format scores.
package main

import (
	"example.com/scores"

	"github.com/evalrun/evalrun/cmd/evalrun/builtin"
	"github.com/evalrun/evalrun/cmd/evalrun/cli"
)

var version string // set by -ldflags "-X main.version=v1.2.3"

func main() {
	kinds := builtin.Kinds()
	kinds.Exporters = append(kinds.Exporters, scores.Kind)
	cli.Run(kinds, version)
}
