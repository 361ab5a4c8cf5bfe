package jail

import (
	"os"
	"testing"

	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
	"github.com/evalrun/evalrun/runtime/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	executor.Main() // this program is what runs inside, where there is no slim build of it
	os.Exit(m.Run())
}

func TestSuite(t *testing.T) {
	if err := New().Probe(t.Context()); err != nil {
		if os.Getenv("EVALRUN_TEST_LOCAL") != "" { // then there has to be what they need
			t.Fatal(err)
		}
		t.Skip("no such machines here: ", err)
	}
	home, _ := os.UserHomeDir()
	sandboxtest.Run(t, sandboxtest.Suite{
		Driver:  func(t *testing.T) sandbox.Driver { return New() },
		Secrets: []string{home + "/"},
		Claims:  sandboxtest.Claims{Disk: true, NoNet: true, Usage: true},
	})
}
