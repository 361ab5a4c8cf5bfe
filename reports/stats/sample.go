package stats

import "math"

// tiny is smaller than any difference between scores and larger than rounding errors.
const tiny = 1e-9

// A sample holds values by cluster, and statistics of their mean.
type sample struct {
	clusters []cluster
	n        float64 // number of values
	mean     float64
	se       float64 // cluster-robust standard error of the mean; NaN for a single cluster
	df       float64 // degrees of freedom of se
}

// newSample computes the cluster-robust standard error of a mean and its degrees of freedom, by CR2
// of Bell and McCaffrey (2002). For clusters of equal size this is the standard error of the mean
// of the cluster means, with one degree of freedom fewer than there are clusters. A cluster that is
// much larger than the others reduces both precision and degrees of freedom.
func newSample(vs []Value) *sample {
	s := &sample{clusters: group(vs), n: float64(len(vs)), mean: Mean(values(vs)), se: math.NaN(), df: math.Inf(1)}
	if len(s.clusters) < 2 {
		return s
	}
	// With shares w = n_g/n and a = 1/(1−w), the variance is a quadratic form of the sums of
	// clusters with the matrix M = diag(a) − u1' − 1u' + q, u = aw, q = Σaw². Satterthwaite: df =
	// tr(MΣ)²/tr((MΣ)²), where Σ = diag(n_g).
	var v, q, trace, s0, s1, s2, diagonal float64
	for _, c := range s.clusters {
		w := float64(len(c.xs)) / s.n
		q += float64(w*w) / (1 - w)
	}
	for _, c := range s.clusters {
		size := float64(len(c.xs))
		w := size / s.n
		a, e := 1/(1-w), c.sum-size*s.mean
		v += float64(a * e * e)
		u, sigma := a*w, size
		m := a - 2*u + q
		trace += float64(sigma * m)
		diagonal += float64(sigma * sigma * (float64(m*m) - float64((q-2*u)*(q-2*u))))
		s0, s1, s2 = s0+sigma, s1+float64(sigma*u), s2+float64(sigma*u*u)
	}
	s.se = math.Sqrt(v) / s.n
	s.df = trace * trace / (q*q*s0*s0 + 2*s2*s0 + 2*s1*s1 - 4*q*s1*s0 + diagonal)
	if !s.varies() {
		s.df = math.Inf(1)
	}
	return s
}

// varies reports whether the means of clusters differ, so that there is a usable standard error.
func (s *sample) varies() bool { return s.se > tiny }

// same reports whether all values are equal.
func (s *sample) same() bool {
	first := s.clusters[0].xs[0]
	for _, c := range s.clusters {
		for _, x := range c.xs {
			if x != first {
				return false
			}
		}
	}
	return true
}

// largestEffect returns the design effect for the case that all values within a cluster are equal:
// the number of repeats, if it is the same for all clusters.
func (s *sample) largestEffect() float64 {
	var sq float64
	for _, c := range s.clusters {
		size := float64(len(c.xs))
		sq += float64(size * size)
	}
	return sq / s.n
}

// effective returns the effective sample size (Kish): the number of independent trials of 0 and 1,
// with variance v each, that would give the mean with the same precision. If few clusters are
// informative, that is, contain values that could vary, they tell little about the design effect;
// therefore one more cluster with the worst effect is added. Without it, intervals of rare
// successes are much too narrow.
func (s *sample) effective(v float64, informative int) float64 {
	worst := s.largestEffect()
	if !s.varies() || v <= 0 {
		return s.n / worst
	}
	k := float64(informative)
	return s.n * (k + 1) / (k*s.se*s.se*s.n/v + worst)
}
