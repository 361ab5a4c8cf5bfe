package stats

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/mathext"
)

// A Pairing is one task (and repeat) as two arms played it. Pairings that are not independent share
// a Cluster.
type Pairing struct {
	A, B    float64
	Cluster string
}

// A Verdict is what a comparison says.
type Verdict string

const (
	ABetter  Verdict = "a_better"
	BBetter  Verdict = "b_better"
	NotShown Verdict = "none"    // no difference is shown
	TooFew   Verdict = "too_few" // no result of so few clusters could show one
)

// Tests that a comparison rests on.
const (
	McNemarTest = "mcnemar mid-p"
	ScoreTest   = "score over clusters"
	TTest       = "t over clusters"
)

// Paired is what two arms differ by on the tasks that both have played. Fields that cannot be known
// (the error of a single pair, the correlation with an arm that never varies) are nil, so that the
// struct always encodes as JSON.
type Paired struct {
	N        int      `json:"n"`
	Clusters int      `json:"clusters"`
	MeanA    float64  `json:"mean_a"`
	MeanB    float64  `json:"mean_b"`
	Diff     float64  `json:"difference"` // B − A
	SE       *float64 `json:"se"`         // robust to clusters
	Corr     *float64 `json:"correlation"`

	// Verdict, P and Interval agree: a difference is shown where Holm is at most 1 − the level
	// asked for, and then 0 is not in Interval, of which an end that is 0 does not belong to it.
	// Else 0 is.
	Verdict  Verdict  `json:"verdict"`
	Needed   int      `json:"clusters_needed"` // with fewer no difference can be shown
	Together int      `json:"comparisons"`     // made together, this one included
	Test     string   `json:"test"`
	P        *float64 `json:"p"`      // two-sided
	Holm     *float64 `json:"p_holm"` // P, corrected for the comparisons made together
	// of Diff; its Level is such that those of comparisons made together hold together
	Interval *Interval `json:"interval"`

	// Detectable is the smallest true difference that tasks like these would show with 80 % power.
	Detectable *float64 `json:"smallest_detectable"`
	// Scores of 0 and 1 only: how often just one side was right.
	OnlyA int `json:"only_a"`
	OnlyB int `json:"only_b"`
}

// Compare holds the rule for differences. Each set is two arms, and the sets are comparisons that
// are read together; one without pairs gives nil and does not count. level is the confidence that
// all is right that is said about them.
//
// The test is, for each set,
//
//   - McNemar's, mid-p, for scores of 0 and 1 of independent pairs;
//   - else the score test over clusters, for the effective size of the sample, with Student's t;
//   - Student's t alone where scores are outside of 0 … 1;
//
// and never says more than that each of G clusters might as well have favoured the other arm: p is
// at least 2^−G. Several sets are corrected by Holm. Intervals are Tango's (1998), for the
// effective size, which hold together by Bonferroni's correction; 0 is put in or out as the test
// says.
func Compare(sets [][]Pairing, level float64) []*Paired {
	out := make([]*Paired, len(sets))
	var of []int // sets that have pairs
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

// pair computes what needs no rule.
func pair(set []Pairing) (*Paired, *difference) {
	set = slices.Clone(set)
	slices.SortFunc(set, func(x, y Pairing) int {
		return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) // for the correlation's last bits
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
	binary, inside bool    // scores are 0 or 1; differences are in −1 … 1
	worse, better  float64 // mean losses and gains of B over all pairs: better − worse is the mean
	onlyA, onlyB   int
}

func (d *difference) size() int { return len(d.clusters) }

// single says whether McNemar's test and Tango's interval apply as they are.
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

// trials is the effective number of pairs.
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

// p is the two-sided p-value of no difference.
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

// interval is that of the test, before the rule makes the two agree. It is not known where scores
// outside of 0 … 1 do not vary.
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

// tango is the score interval for the difference of two paired shares (Tango, Statistics in
// Medicine 17, 1998): of n pairs, b are right on the first side only and c on the second only. It
// is all differences that are within z standard errors of what was observed, the errors being those
// that the difference itself implies.
func tango(b, c, n, z, level float64) Interval {
	score := func(d float64) float64 {
		// The share of pairs that only the first side gets right is the most likely one, given d.
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

// Holm adjusts p-values of several comparisons so that the chance of even one false alarm stays
// below the level that they are then held against. The result is in the order of ps.
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
