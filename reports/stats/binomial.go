package stats

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Wilson returns the score interval for k of n independent successes, without continuity
// correction. It stays within [0, 1]. For n = 0 nothing is known, and the interval is [0, 1]. k and
// n need not be whole numbers.
func Wilson(k, n, level float64) Interval {
	if n <= 0 {
		return Interval{0, 1, level}
	}
	z := quantile(level)
	p := k / n
	d := 1 + float64(z*z)/n
	mid := (p + float64(z*z)/(2*n)) / d
	half := z / d * math.Sqrt(float64(p*(1-p))/n+float64(z*z)/(4*n*n))
	iv := Interval{max(0, mid-half), min(1, mid+half), level}
	if k == 0 {
		iv.Low = 0 // exact, in spite of rounding
	}
	if k == n {
		iv.High = 1
	}
	return iv
}

// MidP returns the mid-p interval for k of n independent successes: the exact interval of Clopper
// and Pearson, in which the observed outcome counts half (Lancaster 1961; Agresti and Gottard
// 2005). Unlike [Wilson], it also has good coverage for small proportions of few tasks. k and n
// need not be whole numbers, because an effective sample size is not.
func MidP(k, n, level float64) Interval {
	if n <= 0 {
		return Interval{0, 1, level}
	}
	k = min(max(k, 0), n)
	// above returns the probability of more than k successes plus half the probability of k. It
	// increases with p.
	above := func(p float64) float64 {
		more, least := 0.0, 1.0
		if k < n {
			more = mathext.RegIncBeta(k+1, n-k, p)
		}
		if k > 0 {
			least = mathext.RegIncBeta(k, n-k+1, p)
		}
		return (more + least) / 2
	}
	a := (1 - level) / 2
	iv := Interval{0, 1, level}
	if k > 0 {
		iv.Low = crossing(0, k/n, func(p float64) bool { return above(p) < a })
	}
	if k < n {
		iv.High = crossing(k/n, 1, func(p float64) bool { return above(p) < 1-a })
	}
	return iv
}

// crossing returns the point where below, which is true at low, becomes false on the way to high.
func crossing(low, high float64, below func(float64) bool) float64 {
	for range 60 {
		if mid := low + (high-low)/2; below(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low + (high-low)/2
}

// McNemar tests whether two arms differ on binary outcomes of the same tasks. b is the number of
// tasks that only the first arm solved, c the number that only the second solved; tasks on which
// they agree carry no information. It returns the mid-p version, because the exact test is
// conservative, and so is the continuity-corrected one (Fagerland, Lydersen, Laake 2013). If b and
// c are 0, it returns 1.
func McNemar(b, c int) float64 {
	n := b + c
	if n == 0 {
		return 1
	}
	k := min(b, c)
	f := binomial(k, n)
	if b == c {
		return 1 - f/2
	}
	return min(1, 2*binomialCDF(k, n)-f)
}

// binomial returns the probability of k heads in n tosses of a fair coin.
func binomial(k, n int) float64 {
	return math.Exp(lchoose(n, k) - float64(n)*math.Ln2)
}

func binomialCDF(k, n int) float64 {
	if k >= n {
		return 1
	}
	return mathext.RegIncBeta(float64(n-k), float64(k+1), 0.5)
}

func lchoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// PassAtK estimates the probability that at least one of k tries succeeds, given c successes in n
// tries (Chen et al. 2021, unbiased): 1 − C(n−c, k)/C(n, k). It returns NaN unless 1 ≤ k ≤ n.
func PassAtK(n, c, k int) float64 {
	if k < 1 || k > n || c < 0 || c > n {
		return math.NaN()
	}
	miss := 1.0
	for i := range k { // probability that all k are drawn from the n−c failures
		miss *= float64(max(n-c-i, 0)) / float64(n-i)
	}
	return 1 - miss
}

// PassHatK estimates the probability that all of k tries succeed (pass^k): C(c, k)/C(n, k). It
// returns NaN unless 1 ≤ k ≤ n.
func PassHatK(n, c, k int) float64 {
	if k < 1 || k > n || c < 0 || c > n {
		return math.NaN()
	}
	p := 1.0
	for i := range k {
		p *= float64(max(c-i, 0)) / float64(n-i)
	}
	return p
}

// quantile returns z for a two-sided confidence level.
func quantile(level float64) float64 { return mathext.NormalQuantile(1 - (1-level)/2) }

// tQuantile returns Student's t for a two-sided confidence level, or z if df is infinite.
func tQuantile(level, df float64) float64 {
	if math.IsInf(df, 1) {
		return quantile(level)
	}
	x := mathext.InvRegIncBeta(df/2, 0.5, 1-level)
	return math.Sqrt(df * (1 - x) / x)
}

// tTest returns the two-sided p-value of Student's t, or of z if df is infinite.
func tTest(t, df float64) float64 {
	if math.IsInf(df, 1) {
		return math.Erfc(math.Abs(t) / math.Sqrt2)
	}
	return mathext.RegIncBeta(df/2, 0.5, df/(df+t*t))
}
