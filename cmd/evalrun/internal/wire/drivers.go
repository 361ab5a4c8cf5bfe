package wire

import (
	"github.com/evalrun/evalrun/cmd/evalrun/internal/config"
	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func driverKinds() []driverKind {
	return []driverKind{
		{config.Kind{Name: "fake", Doc: "machines in memory, for tests"},
			func(driverOptions) (sandbox.Driver, error) { return fake.New(), nil }},
	}
}
