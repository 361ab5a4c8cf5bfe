package browsers_test

import (
	"os"
	"testing"

	"github.com/evalrun/evalrun/runtime/executor"
)

func TestMain(m *testing.M) {
	executor.Main() // where there is no slim executor, this program is one
	os.Exit(m.Run())
}
