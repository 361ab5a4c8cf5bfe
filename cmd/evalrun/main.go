// Evalrun runs agents against benchmarks. See the README, or run evalrun --help.
package main

import (
	"github.com/evalrun/evalrun/cmd/evalrun/builtin"
	"github.com/evalrun/evalrun/cmd/evalrun/cli"
)

// version is set at build time with -ldflags "-X main.version=v1.2.3".
var version string

func main() { cli.Run(builtin.Kinds(), version) }
