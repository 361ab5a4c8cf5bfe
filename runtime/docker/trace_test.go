package docker

import (
	"testing"

	"github.com/evalrun/evalrun/runtime/executor/tracetest"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestTraceLookups(t *testing.T) {
	for name, spec := range map[string]sandbox.Spec{
		"plain":   {},
		"setuid":  {Setuid: true},
		"network": {Setuid: true, Network: sandbox.Network{Mode: "public"}},
	} {
		if testing.Short() && name != "setuid" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d := require(t)
			spec.Image, spec.Trace = sandbox.Image{Ref: testBase}, true
			tracetest.Suite{Users: true, Setuid: spec.Setuid, Create: func(t testing.TB) sandbox.Sandbox {
				return open(t, d, spec)
			}}.Run(t)
		})
	}
}

func BenchmarkTrace(b *testing.B) {
	for name, setuid := range map[string]bool{"plain": false, "setuid": true} {
		b.Run(name, func(b *testing.B) {
			d := require(b)
			tracetest.Suite{Create: func(t testing.TB) sandbox.Sandbox {
				return open(t, d, sandbox.Spec{Image: sandbox.Image{Ref: testBase}, Setuid: setuid, Trace: true})
			}}.Benchmark(b)
		})
	}
}
