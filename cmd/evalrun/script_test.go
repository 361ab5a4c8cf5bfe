package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalrun/evalrun/cmd/evalrun/internal/wire"
)

var update = flag.Bool("update", false, "write the golden files of scripts anew")

func TestMain(m *testing.M) {
	wire.Init() // the test program is its own executor, as evalrun is
	testscript.Main(m, map[string]func(){"evalrun": main})
}

// TestScripts runs what a user types through the true main.
func TestScripts(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			env.Setenv("OPENAI_API_KEY", "")
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, nil
		},
	})
}
