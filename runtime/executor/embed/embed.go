// Package embed holds the slim builds of the executor, if they were made: go generate (or make)
// puts them here. Without them, evalrun uses itself as the executor, which works the same and
// starts a little slower.
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
