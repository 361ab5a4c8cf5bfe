package local

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Process 1 stays out of the commands' memory group: else what a command leaves there (inodes)
// could be its end. Which thread Go gives to whom is chance, so many are looked at.
func TestProcess1IsNotInTheMemoryGroup(t *testing.T) {
	require(t)
	g := findGroups()
	if g.v2 != "" || !g.has("memory") {
		t.Skip("commands have no memory group of version 1 here")
	}
	d := New()
	t.Cleanup(func() { d.Close() })
	for range 30 {
		sb, err := d.Create(t.Context(), sandbox.Spec{Owner: sandbox.Self(), Memory: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", sb.(*box).p.pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(groups), prefix) {
			t.Errorf("process 1 is in\n%s", groups)
		}
		if err := sb.Close(); err != nil {
			t.Error(err)
		}
	}
}
