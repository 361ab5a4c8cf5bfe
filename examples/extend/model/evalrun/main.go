// Evalrun with the models of Ollama.
package main

import (
	"example.com/ollama"

	"github.com/evalrun/evalrun/cmd/evalrun/builtin"
	"github.com/evalrun/evalrun/cmd/evalrun/cli"
)

var version string // set by -ldflags "-X main.version=v1.2.3"

func main() {
	kinds := builtin.Kinds()
	kinds.Models = append(kinds.Models, ollama.Kind)
	cli.Run(kinds, version)
}
