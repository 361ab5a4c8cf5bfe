package benchmarks

import (
	"slices"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// GraderRoom returns the specs for which grader capacity is reserved: all of them, or only the
// largest if they are opened in turn. If the largest depends on a driver's defaults, GraderRoom
// returns every candidate.
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

// A size is the resource demand of a machine and its services, as admission counts it. Values left
// to the driver's defaults are only counted.
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

// within reports whether a machine of size z fits wherever one of size o fits, whatever the
// defaults are.
func (z size) within(o size) bool {
	return z.cpus <= o.cpus && z.memory <= o.memory && z.anyCPU <= o.anyCPU && z.anyMemory <= o.anyMemory
}
