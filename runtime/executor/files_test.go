package executor_test

import (
	"testing"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// The program inside a sandbox imports little, so both sides have this name of their own.
func TestLeftOut(t *testing.T) {
	if execproto.LeftOut != sandbox.LeftOut {
		t.Errorf("%q is written, %q is read", execproto.LeftOut, sandbox.LeftOut)
	}
}
