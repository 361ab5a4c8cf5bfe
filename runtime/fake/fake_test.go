package fake_test

import (
	"testing"

	"github.com/evalrun/evalrun/runtime/fake"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Suite{
		Driver: func(t *testing.T) sandbox.Driver {
			d := fake.New(helper())
			t.Cleanup(func() { d.CheckAllClosed(t) })
			return d
		},
		Helper: "helper",
		Claims: sandboxtest.Claims{Memory: true, Disk: true, Pids: true, Users: true, Find: true, NoNet: true},
	})
}
