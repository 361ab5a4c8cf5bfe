package benchmarks

import (
	"slices"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// GraderRoom are the specs that room for the grader's machines is taken by: all of them, or, where
// they are opened in turn, the largest. Which one that is may depend on a driver's defaults; then
// those that may be it.
func (n Needs) GraderRoom() []sandbox.Spec {
	if !n.InTurn {
		return n.Grader
	}
	var out []sandbox.Spec
	for _, s := range n.Grader {
		size := sizeOf(s)
		if slices.ContainsFunc(out, func(o sandbox.Spec) bool { return size.within(sizeOf(o)) }) {
			continue
		}
		out = append(slices.DeleteFunc(out, func(o sandbox.Spec) bool { return sizeOf(o).within(size) }), s)
	}
	return out
}

// A size is what admission counts of a machine with its services; what is left to defaults is only
// counted.
type size struct {
	cpus              float64
	memory            int64
	anyCPU, anyMemory int
}

func sizeOf(s sandbox.Spec) size {
	z := size{cpus: s.Reserve.CPUs, memory: s.Reserve.Memory}
	if z.cpus <= 0 {
		z.cpus = s.CPUs
	}
	if z.memory <= 0 {
		z.memory = s.Memory
	}
	if z.cpus <= 0 {
		z.anyCPU++
	}
	if z.memory <= 0 {
		z.anyMemory++
	}
	for _, side := range s.Services {
		o := sizeOf(side)
		z.cpus, z.memory, z.anyCPU, z.anyMemory = z.cpus+o.cpus, z.memory+o.memory, z.anyCPU+o.anyCPU,
			z.anyMemory+o.anyMemory
	}
	return z
}

// within reports whether a machine of size z fits where one of size o does, whatever the defaults
// are.
func (z size) within(o size) bool {
	return z.cpus <= o.cpus && z.memory <= o.memory && z.anyCPU <= o.anyCPU && z.anyMemory <= o.anyMemory
}
