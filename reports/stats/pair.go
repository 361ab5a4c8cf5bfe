package stats

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// A Pairing holds the scores of two arms for one task (and repeat). Pairings that are not
// independent share a Cluster.
type Pairing struct {
	A, B    float64
	Cluster string
}

// A Verdict is the conclusion of a comparison.
type Verdict string

const (
	ABetter  Verdict = "a_better"
	BBetter  Verdict = "b_better"
	NotShown Verdict = "none"    // no difference is shown
	TooFew   Verdict = "too_few" // with so few clusters no result could show a difference
)

// Tests that a comparison may use.
const (
	McNemarTest = "mcnemar mid-p"
	ScoreTest   = "score over clusters"
	TTest       = "t over clusters"
)

// Paired describes the difference between two arms on the tasks that both played. Fields that
// cannot be computed (the error of a single pair, the correlation with an arm that never varies)
// are nil, so that the struct can always be encoded as JSON.
type Paired struct {
	N        int      `json:"n"`
	Clusters int      `json:"clusters"`
	MeanA    float64  `json:"mean_a"`
	MeanB    float64  `json:"mean_b"`
	Diff     float64  `json:"difference"` // B − A
	SE       *float64 `json:"se"`         // cluster-robust
	Corr     *float64 `json:"correlation"`

	// Verdict, P and Interval agree. A difference is shown if Holm is at most 1 − level; then
	// Interval does not contain 0, where an end equal to 0 counts as outside. Otherwise Interval
	// contains 0.
	Verdict Verdict `json:"verdict"`
	// minimum number of clusters that could show a difference
	Needed int `json:"clusters_needed"`
	// number of comparisons made together, including this one
	Together int      `json:"comparisons"`
	Test     string   `json:"test"`
	P        *float64 `json:"p"`      // two-sided
	Holm     *float64 `json:"p_holm"` // P, corrected for the number of comparisons
	// of Diff; Level is chosen such that all intervals made together hold simultaneously
	Interval *Interval `json:"interval"`

	// Detectable is the smallest true difference that would be shown with 80 % power on tasks like
	// these.
	Detectable *float64 `json:"smallest_detectable"`
	// For scores of 0 and 1 only: how often only one side succeeded.
	OnlyA int `json:"only_a"`
	OnlyB int `json:"only_b"`
}

// Compare compares arms. Each set holds the pairings of two arms, and the sets are comparisons that
// are read together. A set without pairs gives nil and is not counted. level is the confidence that
// all statements about all sets are correct.
//
// For each set the test is
//
//   - McNemar's mid-p test, for scores of 0 and 1 of independent pairs;
//   - otherwise the score test over clusters, for the effective sample size, with Student's t;
//   - Student's t alone if scores are outside of 0 … 1;
//
// but the p-value is never below 2^−G for G clusters, the probability that all of them favour a
// given arm by chance. Several sets are corrected by Holm's method. Intervals are Tango's (1998)
// for the effective sample size, and hold simultaneously by Bonferroni's correction. Whether they
// contain 0 is adjusted to the result of the test.
func Compare(sets [][]Pairing, level float64) []*Paired {
	out := make([]*Paired, len(sets))
	var of []int // indexes of the sets that have pairs
	var ds []*difference
	var ps []float64
	for i, set := range sets {
		if len(set) == 0 {
			continue
		}
		p, d := pair(set)
		out[i] = p
		of, ds, ps = append(of, i), append(ds, d), append(ps, d.p())
	}
	alpha := (1 - level) / float64(max(1, len(of)))
	needed := int(math.Ceil(math.Log2(1/alpha) - tiny))
	for j, holm := range Holm(ps) {
		p, d := out[of[j]], ds[j]
		p.Needed, p.Together, p.Test = needed, len(of), d.test()
		p.Verdict = NotShown
		iv, known := d.interval(1 - alpha)
		switch {
		case !known || d.size() < needed:
			p.Verdict = TooFew
		case holm <= 1-level && p.Diff > 0:
			p.Verdict = BBetter
		case holm <= 1-level && p.Diff < 0:
			p.Verdict = ABetter
		}
		if !known {
			continue
		}
		p.P, p.Holm, p.Interval = &ps[j], &holm, &iv
		switch p.Verdict {
		case BBetter:
			iv.Low = max(0, iv.Low)
		case ABetter:
			iv.High = min(0, iv.High)
		default:
			iv.Low, iv.High = min(0, iv.Low), max(0, iv.High)
		}
		if d.varies() && d.size() >= needed {
			p.Detectable = orNil((tQuantile(1-alpha, d.freedom()) + mathext.NormalQuantile(0.8)) * d.se)
		}
	}
	return out
}

// pair computes everything that does not depend on the level or the other sets.
func pair(set []Pairing) (*Paired, *difference) {
	set = slices.Clone(set)
	slices.SortFunc(set, func(x, y Pairing) int {
		// makes the last bits of the correlation deterministic
		return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B))
	})
	as, bs, ds := make([]float64, len(set)), make([]float64, len(set)), make([]Value, len(set))
	p, d := &Paired{N: len(set)}, &difference{binary: true, inside: true}
	var worse, better []float64
	for i, x := range set {
		as[i], bs[i], ds[i] = x.A, x.B, Value{x.B - x.A, x.Cluster}
		d.binary = d.binary && (x.A == 0 || x.A == 1) && (x.B == 0 || x.B == 1)
		d.inside = d.inside && math.Abs(x.B-x.A) <= 1
		switch {
		case x.A > x.B:
			worse = append(worse, x.A-x.B)
		case x.B > x.A:
			better = append(better, x.B-x.A)
		}
	}
	d.sample = newSample(ds)
	d.worse, d.better = sum(worse)/d.n, sum(better)/d.n
	p.Clusters = len(d.clusters)
	p.MeanA, p.MeanB, p.Diff = Mean(as), Mean(bs), d.mean
	p.SE, p.Corr = orNil(d.se), orNil(correlation(as, bs))
	d.onlyA, d.onlyB = len(worse), len(better)
	if d.binary {
		p.OnlyA, p.OnlyB = d.onlyA, d.onlyB
	}
	return p, d
}

// A difference is a sample of paired differences.
type difference struct {
	*sample
	binary, inside bool    // scores are 0 or 1; differences are within −1 … 1
	worse, better  float64 // mean losses and gains of B over all pairs; better − worse is the mean
	onlyA, onlyB   int
}

func (d *difference) size() int { return len(d.clusters) }

// single reports whether McNemar's test and Tango's interval apply without an effective sample
// size.
func (d *difference) single() bool { return d.binary && int(d.n) == len(d.clusters) }

func (d *difference) test() string {
	switch {
	case d.single():
		return McNemarTest
	case d.inside:
		return ScoreTest
	}
	return TTest
}

// trials returns the effective number of pairs.
func (d *difference) trials() float64 {
	if d.single() {
		return d.n
	}
	informative := 0
	for _, c := range d.clusters {
		if math.Abs(c.sum) > tiny {
			informative++
		}
	}
	return d.effective(d.worse+d.better-d.mean*d.mean, informative)
}

func (d *difference) freedom() float64 {
	if d.single() {
		return math.Inf(1)
	}
	return d.df
}

// p returns the two-sided p-value for the hypothesis of no difference.
func (d *difference) p() float64 {
	p := 1.0
	switch {
	case d.single():
		p = McNemar(d.onlyA, d.onlyB)
	case d.inside && d.worse+d.better > 0:
		p = tTest(d.mean/math.Sqrt((d.worse+d.better)/d.trials()), d.freedom())
	case !d.inside && d.varies():
		p = tTest(d.mean/d.se, d.df)
	}
	return max(p, math.Exp2(-float64(d.size())))
}

// interval returns the test's interval, before it is adjusted to agree with the verdict. It is
// unknown if scores outside of 0 … 1 do not vary.
func (d *difference) interval(level float64) (iv Interval, known bool) {
	switch {
	case d.inside:
		n := d.trials()
		return tango(d.worse*n, d.better*n, n, tQuantile(level, d.freedom()), level), true
	case d.varies():
		half := tQuantile(level, d.df) * d.se
		return Interval{d.mean - half, d.mean + half, level}, true
	}
	return Interval{}, false
}

// tango returns the score interval for the difference of two paired proportions (Tango, Statistics
// in Medicine 17, 1998). Of n pairs, b succeeded only on the first side and c only on the second.
// The interval contains all differences within z standard errors of the observed one, where the
// standard error is the one that the difference itself implies.
func tango(b, c, n, z, level float64) Interval {
	score := func(d float64) float64 {
		// q is the maximum likelihood estimate, given d, of the proportion of pairs that succeed
		// only on the first side.
		lin, abs := (2*n-c+b)*d-b-c, -b*d*(1-d)
		q := (math.Sqrt(max(0, lin*lin-8*n*abs)) - lin) / (4 * n)
		observed, v := c-b-n*d, n*(2*q+d*(1-d))
		switch {
		case v > 0:
			return observed / math.Sqrt(v)
		case observed == 0:
			return 0
		}
		return math.Copysign(math.Inf(1), observed)
	}
	diff := (c - b) / n
	return Interval{
		Low:   crossing(-1, diff, func(d float64) bool { return score(d) > z }),
		High:  crossing(diff, 1, func(d float64) bool { return score(d) > -z }),
		Level: level,
	}
}

// Holm adjusts the p-values of several comparisons such that the probability of even one false
// positive stays below the level that they are compared with. The result is in the order of ps.
func Holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ps[a], ps[b]) })
	out := make([]float64, len(ps))
	var high float64
	for rank, i := range order {
		high = max(high, min(1, float64(len(ps)-rank)*ps[i]))
		out[i] = high
	}
	return out
}

func orNil(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
