package executor

import (
	"testing"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// BenchmarkContainerExec is one command in a container that runs.
func BenchmarkContainerExec(b *testing.B) {
	c, _ := create(b).start(Config{})
	for b.Loop() {
		if x, err := c.Exec(b.Context(), sandbox.Command{Args: []string{"/bin/true"}}); err != nil || x.Code != 0 {
			b.Fatal(x, err)
		}
	}
}
