package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Bootstrap is the percentile interval of the mean over resampled clusters: clusters are drawn with replacement, each
// with all its values. Where every value stands alone this is the plain bootstrap. Seeded, and independent of the order
// of vs.
//
// Where all clusters agree (everything right, say) resampling sees no spread and the interval has no width, which promises too
// much; see [Mean01].
func Bootstrap(vs []Value, level float64, seed uint64) Interval {
	gs := group(vs)
	if len(gs) == 0 {
		return Interval{math.NaN(), math.NaN(), level}
	}
	rng := rand.New(rand.NewPCG(seed, 0x6576616c72756e)) // a stream of its own
	means := make([]float64, draws(len(gs)))
	for i := range means {
		var s float64
		var n int
		for range gs {
			g := &gs[rng.IntN(len(gs))]
			s += g.sum
			n += len(g.xs)
		}
		means[i] = s / float64(n)
	}
	slices.Sort(means)
	a := (1 - level) / 2
	return Interval{percentile(means, a), percentile(means, 1-a), level}
}

// draws is how often to resample: 10,000 times, fewer only where clusters are so many that it would take seconds, and the
// interval is then narrow anyway.
func draws(clusters int) int { return max(1000, min(10_000, 100_000_000/clusters)) }

// percentile interpolates linearly between the two nearest of the sorted xs (type 7 of Hyndman and Fan, R's default).
func percentile(xs []float64, p float64) float64 {
	h := p * float64(len(xs)-1)
	i := int(math.Floor(h))
	if i+1 >= len(xs) {
		return xs[len(xs)-1]
	}
	return xs[i] + float64((h-float64(i))*(xs[i+1]-xs[i]))
}

// Methods of an interval.
const (
	ByWilson    = "wilson"
	ByBootstrap = "bootstrap"
	ByClusters  = "wilson over clusters"
)

// Mean01 is the interval that suits scores, and the method that was used: [Wilson] where all are 0 or 1 and stand alone;
// else [Bootstrap], but where all are 0, or all are 1, in clusters, Wilson over the number of clusters.
func Mean01(vs []Value, level float64, seed uint64) (Interval, string) {
	binary, ones := true, 0
	for _, v := range vs {
		switch v.X {
		case 0:
		case 1:
			ones++
		default:
			binary = false
		}
	}
	n := Clusters(vs)
	switch {
	case len(vs) == 0, binary && n == len(vs):
		return Wilson(ones, len(vs), level), ByWilson
	case binary && ones == 0:
		return Wilson(0, n, level), ByClusters
	case binary && ones == len(vs):
		return Wilson(n, n, level), ByClusters
	}
	return Bootstrap(vs, level, seed), ByBootstrap
}
