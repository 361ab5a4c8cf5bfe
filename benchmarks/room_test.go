package benchmarks

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestGraderRoom(t *testing.T) {
	small, large := sandbox.Spec{CPUs: 1, Memory: 1 << 20}, sandbox.Spec{CPUs: 2, Memory: 2 << 20}
	wide := sandbox.Spec{CPUs: 4, Memory: 1 << 20}
	reserved := sandbox.Spec{CPUs: 8, Memory: 8 << 20, Reserve: sandbox.Reserve{CPUs: 1, Memory: 1}}
	served := sandbox.Spec{CPUs: 1, Memory: 1 << 20, Services: map[string]sandbox.Spec{"db": large}}
	var usual sandbox.Spec // as the driver's defaults are
	list := func(s ...sandbox.Spec) []sandbox.Spec { return s }
	for _, c := range []struct{ in, want []sandbox.Spec }{
		{nil, nil},
		{list(small), list(small)},
		{list(small, large, small), list(large)},
		{list(large, reserved, small), list(large)},
		{list(large, wide), list(large, wide)}, // neither fits where the other does
		{list(large, served, small), list(served)},
		{list(small, usual, large, usual), list(usual, large)},
	} {
		if d := cmp.Diff(c.want, Needs{Grader: c.in, InTurn: true}.GraderRoom()); d != "" {
			t.Errorf("%+v: %s", c.in, d)
		}
		if d := cmp.Diff(c.in, Needs{Grader: c.in}.GraderRoom()); d != "" {
			t.Errorf("alive together: %s", d)
		}
	}
}
