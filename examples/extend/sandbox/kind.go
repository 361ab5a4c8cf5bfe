package jail

import "github.com/evalrun/evalrun/runtime/sandbox"

// Kind is the driver's entry in a registry.
var Kind = sandbox.Kind{
	Name: "jail", Doc: "namespaces over a tmpfs, made with clone, mount and pivot_root; no network, no images",
	Open: func(sandbox.Setup) (sandbox.Driver, error) { return New(), nil },
}
