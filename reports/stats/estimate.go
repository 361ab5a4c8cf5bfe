package stats

import "math"

// Methods for the interval of a mean.
const (
	ByMidP      = "mid-p"               // 0 or 1, independent
	ByWilson    = "wilson over tasks"   // all values equal
	ByEffective = "mid-p over clusters" // clustered or fractional values
	ByT         = "t over clusters"     // values outside of 0 … 1
)

// An Estimated is a mean with its interval.
type Estimated struct {
	Mean     float64
	Clusters int
	Interval *Interval // nil if unknown
	Method   string    // of the interval
}

// Estimate returns the mean of values with its interval. The method depends on the values:
//
//   - values of 0 and 1, each in its own cluster: [MidP];
//   - clusters (such as repeats of a task) or fractions: MidP for the effective sample size;
//   - all values equal, so that the variation between tasks is unknown: [Wilson], as if each
//     cluster had been played once;
//   - values outside of 0 … 1: Student's t; without an interval if all are equal.
//
// ok is false if there are no values.
func Estimate(vs []Value, level float64) (e Estimated, ok bool) {
	if len(vs) == 0 {
		return Estimated{}, false
	}
	s := newSample(vs)
	e = Estimated{Mean: s.mean, Clusters: len(s.clusters)}
	interval := func(iv Interval, method string) (Estimated, bool) {
		e.Interval, e.Method = &iv, method
		return e, true
	}
	binary, inside := true, true
	for _, v := range vs {
		binary = binary && (v.X == 0 || v.X == 1)
		inside = inside && v.X >= 0 && v.X <= 1
	}
	switch {
	case !inside && !s.varies():
		return e, true
	case !inside:
		half := tQuantile(level, s.df) * s.se
		return interval(Interval{s.mean - half, s.mean + half, level}, ByT)
	case s.same():
		n := s.n / s.largestEffect()
		return interval(Wilson(s.mean*n, n, level), ByWilson)
	case binary && len(vs) == len(s.clusters):
		return interval(MidP(math.Round(s.mean*s.n), s.n, level), ByMidP)
	}
	// Clusters tell how much tasks vary only if not all of their values are at the end of the scale
	// that is closest to the mean.
	informative, end := 0, 0.0
	if s.mean > 0.5 {
		end = 1
	}
	for _, c := range s.clusters {
		if math.Abs(c.sum-end*float64(len(c.xs))) > tiny {
			informative++
		}
	}
	n := s.effective(s.mean*(1-s.mean), informative)
	z := quantile(level) / tQuantile(level, s.df)
	n *= z * z // correction of Korn and Graubard (1998) for few clusters
	return interval(MidP(s.mean*n, n, level), ByEffective)
}
