package fake

import "github.com/evalrun/evalrun/runtime/sandbox"

// Kind is the driver's entry in a registry.
var Kind = sandbox.Kind{
	Name: "fake", Doc: "machines in memory, for tests",
	Images: true, Test: true,
	Open: func(sandbox.Setup) (sandbox.Driver, error) { return New(Options{}), nil },
}
