package local

import (
	"testing"

	"github.com/evalrun/evalrun/runtime/executor/tracetest"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestTraceLookups(t *testing.T) {
	d := require(t)
	tracetest.Suite{Users: manyUsers(), Create: func(t testing.TB) sandbox.Sandbox {
		return create(t, d, sandbox.Spec{Trace: true})
	}}.Run(t)
}
