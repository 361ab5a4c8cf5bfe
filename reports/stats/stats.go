// Package stats computes statistics of evaluations: means with confidence intervals that are valid
// also for few tasks, and differences between arms that played the same tasks. It is pure: no I/O,
// no clock, no randomness, and the order of the input does not matter.
//
// Start with [Estimate] for the mean of an arm, and with [Compare] for comparing arms. These two
// decide which method is used when, and everything that prints an interval calls them.
// docs/statistics.md explains the rules and lists the measured coverage; scripts/coverage measures
// it.
package stats

import (
	"cmp"
	"math"
	"slices"
)

// A Value is one score. Values that are not independent (repeats of a task, tasks about the same
// passage or repository) share a Cluster. A value with an empty Cluster is independent.
type Value struct {
	X       float64
	Cluster string
}

// An Interval contains the true value with confidence Level.
type Interval struct {
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Level float64 `json:"level"`
}

// Mean returns the arithmetic mean, or NaN if xs is empty.
func Mean(xs []float64) float64 { return sum(xs) / float64(len(xs)) }

// correlation returns Pearson's correlation, or NaN if one side does not vary.
func correlation(xs, ys []float64) float64 {
	if len(xs) != len(ys) || len(xs) < 2 {
		return math.NaN()
	}
	mx, my := Mean(xs), Mean(ys)
	var sxy, sxx, syy float64
	for i := range xs {
		dx, dy := xs[i]-mx, ys[i]-my
		sxy += float64(dx * dy)
		sxx += float64(dx * dx)
		syy += float64(dy * dy)
	}
	if sxx == 0 || syy == 0 {
		return math.NaN()
	}
	return sxy / math.Sqrt(float64(sxx*syy))
}

// sum adds small values first, so that the last bits do not depend on the order of the input. Sums
// of whole numbers are exact.
func sum(xs []float64) float64 {
	var whole float64
	for i, x := range xs {
		if x != math.Trunc(x) || math.Abs(x) > 1e6 {
			break
		}
		if whole += x; i == len(xs)-1 {
			return whole
		}
	}
	s := slices.Clone(xs)
	slices.SortFunc(s, func(a, b float64) int {
		return cmp.Or(cmp.Compare(math.Abs(a), math.Abs(b)), cmp.Compare(a, b))
	})
	var t float64
	for _, x := range s {
		t += x
	}
	return t
}

func values(vs []Value) []float64 {
	xs := make([]float64, len(vs))
	for i, v := range vs {
		xs[i] = v.X
	}
	return xs
}

type cluster struct {
	name string
	xs   []float64
	sum  float64
}

// group returns the clusters in an order that depends only on their content: named ones by name,
// then independent values by size.
func group(vs []Value) []cluster {
	at := map[string]int{}
	var gs []cluster
	var alone []float64
	last := -1
	for _, v := range vs {
		if v.Cluster == "" {
			alone = append(alone, v.X)
			continue
		}
		if last < 0 || gs[last].name != v.Cluster { // a cluster's values are usually adjacent
			i, ok := at[v.Cluster]
			if !ok {
				i = len(gs)
				at[v.Cluster] = i
				gs = append(gs, cluster{name: v.Cluster})
			}
			last = i
		}
		gs[last].xs = append(gs[last].xs, v.X)
	}
	slices.SortFunc(gs, func(a, b cluster) int { return cmp.Compare(a.name, b.name) })
	slices.Sort(alone)
	for _, x := range alone {
		gs = append(gs, cluster{xs: []float64{x}})
	}
	for i := range gs {
		gs[i].sum = sum(gs[i].xs)
	}
	return gs
}
