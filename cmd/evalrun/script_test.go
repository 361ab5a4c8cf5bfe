package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/harness/launch"
	"github.com/evalrun/evalrun/runtime/docker"
	"github.com/evalrun/evalrun/runtime/image"
	"github.com/evalrun/evalrun/runtime/local"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

var update = flag.Bool("update", false, "write the golden files of scripts anew")

func TestMain(m *testing.M) {
	launch.Init() // the test program is its own executor, as evalrun is
	testscript.Main(m, map[string]func(){"evalrun": main})
}

// dockerHere reports whether scripts may use docker. Where they shall, it has to be there, with the
// images of the tests.
var dockerHere = func(t *testing.T) (bool, error) {
	if os.Getenv("EVALRUN_TEST_DOCKER") != "1" {
		return false, nil
	}
	d, err := launch.OpenDriver(t.Context(), &docker.Kind, image.Options{})
	if err != nil {
		return false, fmt.Errorf("EVALRUN_TEST_DOCKER is set, but: %w", err)
	}
	if _, err := d.Prepare(t.Context(), sandbox.Image{Ref: testImage}); err != nil {
		return false, fmt.Errorf("EVALRUN_TEST_DOCKER is set, but image %s is not there (scripts/test-images "+
			"makes it): %w", testImage, err)
	}
	return true, nil
}

// browserHere reports whether scripts may use a browser, and MiniWoB++'s pages where they are asked
// for.
func browserHere(pages bool) (bool, error) {
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" || pages && os.Getenv("EVALRUN_TEST_MINIWOB") == "" {
		return false, nil
	}
	if _, err := cdp.Find(""); err != nil {
		return false, fmt.Errorf("EVALRUN_TEST_BROWSER is set, but: %w", err)
	}
	return true, nil
}

const testImage = "evalrun-test/bookworm:1"

// TestScripts runs what a user types through the true main.
func TestScripts(t *testing.T) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"tables": tablesCommand, "newer": newerCommand},
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			env.Setenv("OPENAI_API_KEY", "")
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("EVALRUN_BIN", filepath.SplitList(env.Getenv("PATH"))[0])
			env.Setenv("MINIWOB", os.Getenv("EVALRUN_TEST_MINIWOB"))
			env.Setenv("MCP", os.Getenv("EVALRUN_TEST_MCP"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "local":
			case "docker":
				return dockerHere(t)
			case "mcp":
				return os.Getenv("EVALRUN_TEST_MCP") != "", nil
			case "browser", "miniwob":
				return browserHere(cond == "miniwob")
			default:
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			_, err := launch.OpenDriver(t.Context(), &local.Kind, image.Options{})
			if err != nil && os.Getenv("EVALRUN_TEST_LOCAL") != "" {
				return false, fmt.Errorf("EVALRUN_TEST_LOCAL is set, but: %w", err)
			}
			return err == nil, nil
		},
	})
}
