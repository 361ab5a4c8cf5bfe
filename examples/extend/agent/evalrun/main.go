// Evalrun with the agent shell.
package main

import (
	"example.com/shell"

	"github.com/evalrun/evalrun/cmd/evalrun/builtin"
	"github.com/evalrun/evalrun/cmd/evalrun/cli"
)

var version string // set by -ldflags "-X main.version=v1.2.3"

func main() {
	kinds := builtin.Kinds()
	kinds.Agents = append(kinds.Agents, shell.Kind)
	cli.Run(kinds, version)
}
