package docker

import (
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Kind is the driver's entry in a registry.
var Kind = sandbox.Kind{
	Name: "docker", Doc: "containers of a Docker engine: for tasks that bring an image",
	Auto: true, Defaults: Defaults,
	Open: func(s sandbox.Setup) (sandbox.Driver, error) {
		o, _ := s.Images.(image.Options)
		return New(Options{Images: o}), nil
	},
}
