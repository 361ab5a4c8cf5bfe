// Package embed holds the slim builds of the executor, if go generate (or make) has put them here.
// Without them evalrun uses its own program as the executor, which works in the same way and starts
// a little slower.
package embed

import (
	"embed"
)

//go:generate sh build.sh

// The pattern matches this file too, so that it always matches something.
//
//go:embed *
var files embed.FS

// Init returns the executor for an architecture, or nil.
func Init(arch string) []byte {
	b, err := files.ReadFile("evalrun-init-" + arch)
	if err != nil {
		return nil
	}
	return b
}
