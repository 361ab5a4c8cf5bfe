package local

import "github.com/evalrun/evalrun/runtime/sandbox"

// Kind and None are the drivers' entries in a registry.
var (
	Kind = sandbox.Kind{
		Name: "local", Doc: "Linux namespaces: isolated, ready in milliseconds, needs no daemon",
		Takes: func(s sandbox.Spec) bool { return !s.Image.NeedsEngine() && len(s.Services) == 0 },
		Need:  "an isolated machine", Defaults: Defaults,
		Open: func(sandbox.Setup) (sandbox.Driver, error) { return New(), nil },
	}
	None = sandbox.Kind{
		Name: "none", Doc: "no isolation at all: plain processes of this machine, for what one trusts",
		Unisolated: true,
		Open:       func(sandbox.Setup) (sandbox.Driver, error) { return NewUnisolated(), nil },
	}
)
