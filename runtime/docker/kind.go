package docker

import (
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Kind is the driver's entry in a registry.
var Kind = sandbox.Kind{
	Name: "docker", Doc: "containers of a Docker engine: for tasks that bring an image",
	Hint:   "start the engine, or name another by DOCKER_HOST",
	Images: true, NeedsImage: true, Slow: true,
	Takes: func(s sandbox.Spec) bool { return s.Image.NeedsEngine() || len(s.Services) > 0 },
	Need:  "a container engine for an image", Defaults: Defaults,
	Open: func(s sandbox.Setup) (sandbox.Driver, error) {
		o, _ := s.Images.(image.Options)
		return New(Options{Images: o}), nil
	},
}
