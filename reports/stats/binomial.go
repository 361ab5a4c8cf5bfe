package stats

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Wilson is the score interval for k of n independent successes, without correction for continuity. It stays inside
// [0, 1] and is honest for few and for extreme values. Nothing is known of n = 0: the interval is [0, 1].
func Wilson(k, n int, level float64) Interval {
	if n <= 0 {
		return Interval{0, 1, level}
	}
	z := quantile(level)
	nf := float64(n)
	p := float64(k) / nf
	d := 1 + float64(z*z)/nf
	mid := (p + float64(z*z)/(2*nf)) / d
	half := z / d * math.Sqrt(float64(p*(1-p))/nf+float64(z*z)/(4*nf*nf))
	iv := Interval{max(0, mid-half), min(1, mid+half), level}
	if k == 0 {
		iv.Low = 0 // exactly, whatever the rounding
	}
	if k == n {
		iv.High = 1
	}
	return iv
}

// ClopperPearson is the exact interval for k of n independent successes: it never covers less than level, and is wider
// than [Wilson] for that.
func ClopperPearson(k, n int, level float64) Interval {
	if n <= 0 {
		return Interval{0, 1, level}
	}
	a := (1 - level) / 2
	iv := Interval{0, 1, level}
	if k > 0 {
		iv.Low = mathext.InvRegIncBeta(float64(k), float64(n-k+1), a)
	}
	if k < n {
		iv.High = mathext.InvRegIncBeta(float64(k+1), float64(n-k), 1-a)
	}
	return iv
}

// McNemar tests whether two arms differ on the tasks that both have played right or wrong. b counts the tasks that only the first got
// right, c those that only the second did; tasks on which they agree say nothing. The mid-p version is returned: the
// exact one is conservative, and so is a correction for continuity (Fagerland, Lydersen, Laake 2013). No disagreement at all: 1.
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

// McNemarExact is the exact conditional version.
func McNemarExact(b, c int) float64 {
	if b == c {
		return 1
	}
	return min(1, 2*binomialCDF(min(b, c), b+c))
}

// binomial is the chance of k heads in n throws of a fair coin.
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

// PassAtK estimates the chance that at least one of k tries succeeds, from c successes in n tries (Chen et al. 2021,
// without bias): 1 − C(n−c, k)/C(n, k). NaN unless 1 ≤ k ≤ n.
func PassAtK(n, c, k int) float64 {
	if k < 1 || k > n || c < 0 || c > n {
		return math.NaN()
	}
	miss := 1.0
	for i := range k { // all k drawn from the n−c that failed
		miss *= float64(max(n-c-i, 0)) / float64(n-i)
	}
	return 1 - miss
}

// PassHatK estimates the chance that all of k tries succeed (pass^k): C(c, k)/C(n, k). NaN unless 1 ≤ k ≤ n.
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

// quantile is z with the given two-sided confidence.
func quantile(level float64) float64 { return mathext.NormalQuantile(1 - (1-level)/2) }
