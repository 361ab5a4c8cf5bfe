// Package stats is the arithmetic of evaluations: means with honest errors, intervals for few tasks, differences of
// arms that played the same tasks. It is pure: no I/O, no clock, no global state. What is random is seeded, and the same
// input with the same seed gives the same bytes, whatever the order of the input.
//
// Begin with [Wilson] for right-or-wrong scores of independent tasks, [Bootstrap] for everything else, and [Pair] for
// two arms. The methods follow Miller, "Adding Error Bars to Evals" (arXiv 2411.00640), and Bowyer et al.,
// "Don't use the CLT in LLM evals with fewer than a few hundred datapoints" (arXiv 2503.01747).
package stats

import (
	"cmp"
	"math"
	"slices"
)

// A Value is one score. Values that are not independent of each other (repeats of a task, tasks about one passage or one
// repository) share a Cluster; a value with an empty Cluster stands alone.
type Value struct {
	X       float64
	Cluster string
}

// An Interval is where the true value lies with confidence Level.
type Interval struct {
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	Level float64 `json:"level"`
}

// Mean is the arithmetic mean; NaN of nothing.
func Mean(xs []float64) float64 { return sum(xs) / float64(len(xs)) }

// Variance is the unbiased sample variance; NaN of fewer than two values.
func Variance(xs []float64) float64 {
	if len(xs) < 2 {
		return math.NaN()
	}
	m := Mean(xs)
	sq := make([]float64, len(xs))
	for i, x := range xs {
		sq[i] = (x - m) * (x - m)
	}
	return sum(sq) / float64(len(xs)-1)
}

// SE is the standard error of the mean of independent values, √(s²/n); NaN of fewer than two.
func SE(xs []float64) float64 { return math.Sqrt(Variance(xs) / float64(len(xs))) }

// ClusteredSE is the standard error of the mean of values of which those in one cluster are not independent (Miller,
// equation 4): SE² + (1/n²) Σ over clusters Σ over pairs i≠j of (xᵢ−x̄)(xⱼ−x̄). Where every value stands alone it is
// [SE]. NaN of fewer than two values or of a single cluster: one cluster says nothing about the next.
func ClusteredSE(vs []Value) float64 {
	gs := group(vs)
	if len(vs) < 2 || len(gs) < 2 {
		return math.NaN()
	}
	xs := values(vs)
	n, m := float64(len(xs)), Mean(xs)
	var cross float64
	for _, g := range gs {
		var s, sq float64
		for _, x := range g.xs {
			d := x - m
			s += d
			sq += float64(d * d)
		}
		cross += float64(s*s) - sq // Σ_{i≠j} dᵢdⱼ = (Σd)² − Σd²
	}
	v := Variance(xs)/n + cross/(n*n)
	return math.Sqrt(max(v, 0)) // clusters that balance out within can push it below zero by rounding
}

// Correlation is Pearson's; NaN where one side does not vary.
func Correlation(xs, ys []float64) float64 {
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

// Clusters is the number of clusters; each value that stands alone is one.
func Clusters(vs []Value) int { return len(group(vs)) }

// sum adds the small values first, so that the order of the input does not show in the last bits.
func sum(xs []float64) float64 {
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

// group gathers the clusters in an order that depends on their content only: the named ones by name, then the values that
// stand alone by size.
func group(vs []Value) []cluster {
	at := map[string]int{}
	var gs []cluster
	var alone []float64
	for _, v := range vs {
		if v.Cluster == "" {
			alone = append(alone, v.X)
			continue
		}
		i, ok := at[v.Cluster]
		if !ok {
			i = len(gs)
			at[v.Cluster] = i
			gs = append(gs, cluster{name: v.Cluster})
		}
		gs[i].xs = append(gs[i].xs, v.X)
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
