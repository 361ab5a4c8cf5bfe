package stats

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// A Pairing is one task (and repeat) as two arms played it. Pairings that are not independent share a Cluster.
type Pairing struct {
	A, B    float64
	Cluster string
}

// Paired is what two arms differ by on the tasks that both have played. Fields that cannot be known (the error of a single pair,
// the correlation with an arm that never varies) are nil, so that the struct always encodes as JSON.
type Paired struct {
	N        int      `json:"n"`
	Clusters int      `json:"clusters"`
	MeanA    float64  `json:"mean_a"`
	MeanB    float64  `json:"mean_b"`
	Diff     float64  `json:"difference"` // B − A
	SE       *float64 `json:"se"`         // clustered where clusters are
	Corr     *float64 `json:"correlation"`
	Interval Interval `json:"interval"` // of Diff: seeded bootstrap over clusters
	// Detectable is the smallest true difference that n tasks like these would show with 80 % power at 1 − Level.
	Detectable *float64 `json:"smallest_detectable"`
	// Binary scores only: McNemar's mid-p, and how often just one side was right.
	P     *float64 `json:"mcnemar_mid_p"`
	OnlyA int      `json:"only_a"`
	OnlyB int      `json:"only_b"`
}

// Pair compares two arms. ok is false where there is nothing to compare.
func Pair(ps []Pairing, level float64, seed uint64) (p Paired, ok bool) {
	if len(ps) == 0 {
		return Paired{}, false
	}
	ps = slices.Clone(ps)
	slices.SortFunc(ps, func(x, y Pairing) int {
		switch {
		case x.Cluster != y.Cluster:
			return cmp.Compare(x.Cluster, y.Cluster)
		case x.A != y.A:
			return cmp.Compare(x.A, y.A)
		}
		return cmp.Compare(x.B, y.B)
	})
	as, bs, ds := make([]float64, len(ps)), make([]float64, len(ps)), make([]Value, len(ps))
	binary := true
	p.N = len(ps)
	for i, x := range ps {
		as[i], bs[i], ds[i] = x.A, x.B, Value{x.B - x.A, x.Cluster}
		binary = binary && (x.A == 0 || x.A == 1) && (x.B == 0 || x.B == 1)
		switch {
		case x.A > x.B:
			p.OnlyA++
		case x.B > x.A:
			p.OnlyB++
		}
	}
	p.Clusters = Clusters(ds)
	p.MeanA, p.MeanB = Mean(as), Mean(bs)
	p.Diff = Mean(values(ds))
	se := ClusteredSE(ds)
	p.SE = known(se)
	p.Corr = known(Correlation(as, bs))
	p.Interval = difference(ds, binary, p.Clusters, level, seed)
	if se > 0 { // where no pair differs, nothing can be said about what would have shown
		p.Detectable = known(Detectable(se, 1-level, 0.8))
	}
	if binary && p.Clusters == p.N {
		// Pairs in clusters break the test's assumption; the interval above holds.
		p.P = known(McNemar(p.OnlyA, p.OnlyB))
	}
	if !binary {
		p.OnlyA, p.OnlyB = 0, 0
	}
	return p, true
}

// difference is the bootstrap interval of paired differences. Where right-or-wrong scores differ by the same in every pair, resampling
// sees no spread; then a share of the clusters that was not met, as large as Wilson allows, may differ by one more or less.
func difference(ds []Value, binary bool, clusters int, level float64, seed uint64) Interval {
	for _, d := range ds[1:] {
		if d.X != ds[0].X {
			binary = false
		}
	}
	if !binary {
		return Bootstrap(ds, level, seed)
	}
	u := Wilson(0, clusters, level).High
	return Interval{max(-1, ds[0].X-u), min(1, ds[0].X+u), level}
}

// Detectable is the smallest true difference that a test at significance alpha finds with the given power, where the
// difference has standard error se: (z_{α/2} + z_β)·se (Miller, section 5).
func Detectable(se, alpha, power float64) float64 {
	return (mathext.NormalQuantile(1-alpha/2) + mathext.NormalQuantile(power)) * se
}

// SampleSize is how many tasks it takes to see a true difference delta, where omega2 is the variance of the difference over
// tasks and noise the sum of both arms' variances of an answer, each divided by its repeats (Miller, equation 9).
func SampleSize(delta, omega2, noise, alpha, power float64) float64 {
	z := mathext.NormalQuantile(1-alpha/2) + mathext.NormalQuantile(power)
	return z * z * (omega2 + noise) / (delta * delta)
}

// Holm adjusts p-values of several comparisons so that the chance of even one false alarm stays below the level that they
// are then held against. The result is in the order of ps.
func Holm(ps []float64) []float64 {
	order := ascending(ps)
	out := make([]float64, len(ps))
	var high float64
	for rank, i := range order {
		high = max(high, min(1, float64(len(ps)-rank)*ps[i]))
		out[i] = high
	}
	return out
}

// BenjaminiHochberg adjusts p-values so that, of what is then held to be a difference, the expected share of false alarms
// stays below the level. The result is in the order of ps.
func BenjaminiHochberg(ps []float64) []float64 {
	order := ascending(ps)
	out := make([]float64, len(ps))
	low := 1.0
	for rank := len(order) - 1; rank >= 0; rank-- {
		i := order[rank]
		low = min(low, float64(len(ps))/float64(rank+1)*ps[i])
		out[i] = low
	}
	return out
}

func ascending(ps []float64) []int {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ps[a], ps[b]) })
	return order
}

func known(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
