package stats

import "math"

// tiny is below what scores can differ by, and above what rounding does to them.
const tiny = 1e-9

// A sample is values by cluster, with what they say about the mean.
type sample struct {
	clusters []cluster
	n        float64 // values
	mean     float64
	se       float64 // of the mean, robust to what clusters have in common; NaN of a single cluster
	df       float64 // degrees of freedom of se
}

// newSample computes the cluster-robust standard error of a mean with its degrees of freedom, CR2
// of Bell and McCaffrey (2002). For clusters of one size this is the standard error of the mean of
// their means, with one degree of freedom fewer than there are clusters; one that is much larger
// than the others costs both precision and freedom.
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

// varies says whether the means of clusters differ, so that there is a standard error to work with.
func (s *sample) varies() bool { return s.se > tiny }

// same says whether all values are.
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

// largestEffect is the design effect where all values of a cluster are the same: the number of
// repeats, where all clusters have as many.
func (s *sample) largestEffect() float64 {
	var sq float64
	for _, c := range s.clusters {
		size := float64(len(c.xs))
		sq += float64(size * size)
	}
	return sq / s.n
}

// effective is the effective size of the sample (Kish): how many independent trials of 0 and 1,
// with variance v each, would give the mean as precisely. What clusters say about that is little
// where few of them are informative, that is, have something in them that could vary: one more
// cluster is added for which the worst holds. Without it intervals of rare successes are much too
// narrow.
func (s *sample) effective(v float64, informative int) float64 {
	worst := s.largestEffect()
	if !s.varies() || v <= 0 {
		return s.n / worst
	}
	k := float64(informative)
	return s.n * (k + 1) / (k*s.se*s.se*s.n/v + worst)
}
