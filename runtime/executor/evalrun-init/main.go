// Evalrun-init is the executor as a program of its own: process 1 of every sandbox. It is small,
// because it starts for each of them, and it is built for each architecture and embedded into
// evalrun (see package embed).
package main

import (
	"os"

	"github.com/evalrun/evalrun/runtime/executor/internal/server"
)

func main() {
	server.Main()
	os.Stderr.WriteString("evalrun-init is started by evalrun, not by hand\n")
	os.Exit(2)
}
