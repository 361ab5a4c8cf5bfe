// Evalrun with the sandbox driver jail.
package main

import (
	"example.com/jail"

	"github.com/evalrun/evalrun/cmd/evalrun/builtin"
	"github.com/evalrun/evalrun/cmd/evalrun/cli"
)

var version string // set by -ldflags "-X main.version=v1.2.3"

func main() {
	kinds := builtin.Kinds()
	kinds.Sandboxes = append(kinds.Sandboxes, jail.Kind)
	cli.Run(kinds, version)
}
