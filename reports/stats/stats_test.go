package stats

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mathext"
	"pgregory.net/rapid"
)

func near(t *testing.T, what string, got, want, eps float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > eps {
		t.Errorf("%s = %v, want %v ± %v", what, got, want, eps)
	}
}

// Newcombe, "Two-sided confidence intervals for the single proportion: comparison of seven
// methods", Statistics in Medicine 17 (1998), Table I: method 3 (score) and method 6 (mid-p), 95 %.
func TestNewcombe(t *testing.T) {
	for _, c := range []struct {
		k, n        float64
		wLow, wHigh float64
		mLow, mHigh float64
	}{
		{81, 263, 0.2553, 0.3662, 0.2544, 0.3658},
		{15, 148, 0.0624, 0.1605, 0.0601, 0.1581},
		{0, 20, 0.0000, 0.1611, 0.0000, 0.1391},
		{1, 29, 0.0061, 0.1718, 0.0017, 0.1585},
	} {
		w, m := Wilson(c.k, c.n, 0.95), MidP(c.k, c.n, 0.95)
		near(t, "Wilson low", w.Low, c.wLow, 5e-5)
		near(t, "Wilson high", w.High, c.wHigh, 5e-5)
		near(t, "mid-p low", m.Low, c.mLow, 5e-5)
		near(t, "mid-p high", m.High, c.mHigh, 5e-5)
	}
}

// Without events mid-p's upper bound is 1 − α^(1/n): half the chance of none is α/2.
func TestNoEvents(t *testing.T) {
	for _, n := range []float64{1, 3, 30, 500} {
		near(t, "upper", MidP(0, n, 0.95).High, 1-math.Pow(0.05, 1/n), 1e-9)
		near(t, "lower", MidP(n, n, 0.95).Low, math.Pow(0.05, 1/n), 1e-9)
		if w := Wilson(n, n, 0.95); w.High != 1 || Wilson(0, n, 0.95).Low != 0 {
			t.Errorf("Wilson(%v, %v) leaves [0, 1] or does not reach its end: %v", n, n, w)
		}
	}
	for _, iv := range []Interval{Wilson(0, 0, 0.95), MidP(0, 0, 0.95)} {
		if iv.Low != 0 || iv.High != 1 {
			t.Errorf("of nothing: %v", iv)
		}
	}
}

// Student's t from its tables.
func TestStudent(t *testing.T) {
	near(t, "4 degrees", tQuantile(0.95, 4), 2.7764, 5e-5)
	near(t, "29 degrees, 99 %", tQuantile(0.99, 29), 2.7564, 5e-5)
	near(t, "a million degrees", tQuantile(0.95, 1e6), 1.95997, 1e-5)
	near(t, "infinite", tQuantile(0.95, math.Inf(1)), 1.95996, 1e-5)
	for _, df := range []float64{1, 4, 29.5, 1e6, math.Inf(1)} {
		near(t, "p of the quantile", tTest(tQuantile(0.975, df), df), 0.025, 1e-9)
	}
}

// Fagerland, Lydersen, Laake, "The McNemar test for binary matched-pairs data", BMC Med Res
// Methodol 13:91 (2013): airway hyper-responsiveness before and after transplantation (Bentur et
// al.), n12 = 1, n21 = 7, mid-p 0.0391; complete response before and after consolidation (Cavo et
// al.), 6 and 16, mid-p 0.0347.
func TestMcNemar(t *testing.T) {
	near(t, "mid-p 1/7", McNemar(1, 7), 0.0391, 5e-5)
	near(t, "mid-p 6/16", McNemar(16, 6), 0.0347, 5e-5)
	near(t, "no disagreement", McNemar(0, 0), 1, 0)
	near(t, "equal", McNemar(1, 1), 0.75, 1e-12) // their supplement: 1 − f/2, f = 1/2
	// Agresti, Categorical Data Analysis: approval ratings, 86 and 150 changed; z² = 17.36 without
	// correction.
	if p := McNemar(86, 150); p < 2e-5 || p > 5e-5 {
		t.Errorf("mid-p 86/150 = %v", p)
	}
	near(t, "huge", McNemar(500_000, 500_000), 1, 1e-3) // no underflow
}

// EleutherAI/lm-evaluation-harness#3868 reports 220 tasks with p = 0.080 by the unpaired z-test and
// 0.008 by the exact McNemar; it does not print the table. One that has these figures: 122 right
// against 140, 12 and 30 of them alone.
func TestPairingMatters(t *testing.T) {
	p1, p2 := 122.0/220, 140.0/220
	z := (p2 - p1) / math.Sqrt(p1*(1-p1)/219+p2*(1-p2)/219)
	near(t, "unpaired p", math.Erfc(z/math.Sqrt2), 0.080, 5e-4)
	var ps []Pairing
	for i := range 220 {
		switch {
		case i < 12:
			ps = append(ps, Pairing{A: 1})
		case i < 42:
			ps = append(ps, Pairing{B: 1})
		case i < 42+110:
			ps = append(ps, Pairing{A: 1, B: 1})
		default:
			ps = append(ps, Pairing{})
		}
	}
	got := Compare([][]Pairing{ps}, 0.95)[0]
	if got.OnlyA != 12 || got.OnlyB != 30 || got.N != 220 || got.Clusters != 220 {
		t.Fatalf("%+v", got)
	}
	near(t, "difference", got.Diff, 18.0/220, 1e-12)
	if got.Verdict != BBetter || got.Interval.Low <= 0 || *got.P > 0.01 || *got.Holm != *got.P {
		t.Errorf("the paired comparison misses what is there: %+v", got)
	}
	// The paired error is √((b+c)/n − d²)/√n, up to n−1.
	near(t, "paired SE", *got.SE, math.Sqrt((42.0/220-got.Diff*got.Diff)/219), 1e-12)
	near(t, "detectable", *got.Detectable, 2.8016*(*got.SE), 1e-4)
	// Tasks whose differences have this variance, as many as there are, show this difference; the t
	// distribution's longer tails ask for a little more than Miller's normal ones.
	near(t, "tasks for what is detectable", sampleSize(*got.Detectable, 220*(*got.SE)*(*got.SE), 0, 0.05, 0.8), 220, 3)
	// SE² = SE_A² + SE_B² − 2·r·SE_A·SE_B (Miller, section 4)
	a, b := math.Sqrt(p1*(1-p1)/219), math.Sqrt(p2*(1-p2)/219)
	near(t, "SE from correlation", *got.SE, math.Sqrt(a*a+b*b-2**got.Corr*a*b), 1e-12)
}

// sampleSize is how many tasks it takes to see a true difference delta, where omega2 is the
// variance of the difference over tasks and noise the sum of both arms' variances of an answer,
// each divided by its repeats (Miller, equation 9).
func sampleSize(delta, omega2, noise, alpha, power float64) float64 {
	z := mathext.NormalQuantile(1-alpha/2) + mathext.NormalQuantile(power)
	return z * z * (omega2 + noise) / (delta * delta)
}

// Miller, arXiv 2411.00640, section 5: ω² = 1/9, δ = 3 points, α = 0.05, power 80 % take about 969
// questions without answer noise.
func TestMillerSampleSize(t *testing.T) {
	near(t, "n", sampleSize(0.03, 1.0/9, 0, 0.05, 0.8), 969, 0.5)
	near(t, "with one answer each, σ² = 1/6", sampleSize(0.03, 1.0/9, 2.0/6, 0.05, 0.8), 3876, 2)
}

// The cluster-robust error and its degrees of freedom, against the matrices of Bell and McCaffrey
// written out (numpy, the same nine values: residuals times (I−H)^(−1/2) by cluster, Satterthwaite
// with independent values).
func TestClusterRobust(t *testing.T) {
	vs := []Value{{1, "a"}, {1, "a"}, {0, "a"}, {1, "b"}, {0, "b"}, {0, "c"}, {1, "c"}, {0.5, ""}, {0.25, ""}}
	s := newSample(vs)
	near(t, "error", s.se, 0.06629775574049057, 1e-12)
	near(t, "degrees of freedom", s.df, 3.315010570824525, 1e-9)

	// Clusters of one size: the standard error of the mean of their means, G − 1 degrees of
	// freedom.
	vs = nil
	means := []float64{0.25, 0.5, 1, 0, 0.75}
	for i, m := range means {
		for k := range 4 {
			x := 0.0
			if float64(k) < 4*m {
				x = 1
			}
			vs = append(vs, Value{x, string(rune('a' + i))})
		}
	}
	s = newSample(vs)
	near(t, "equal clusters", s.se, 0.176776695296637, 1e-12) // sd 0.395285, √5
	near(t, "equal clusters, freedom", s.df, 4, 1e-9)

	// k copies of each value are no new evidence: the error must not shrink by √k.
	var once, copies []Value
	for i, m := range means {
		once = append(once, Value{m, ""})
		for range 4 {
			copies = append(copies, Value{m, string(rune('a' + i))})
		}
	}
	near(t, "copies", newSample(copies).se, newSample(once).se, 1e-12)
	if s := newSample([]Value{{1, "a"}, {0, "a"}}); !math.IsNaN(s.se) {
		t.Error("one cluster has an error")
	}
}

// Chen et al., "Evaluating Large Language Models Trained on Code" (2021): 1 − C(n−c, k)/C(n, k);
// for k = 1 it is c/n.
func TestPass(t *testing.T) {
	near(t, "pass@1", PassAtK(200, 37, 1), 37.0/200, 1e-12)
	near(t, "pass@2", PassAtK(5, 2, 2), 1-3.0/10, 1e-12)    // C(3,2)/C(5,2)
	near(t, "pass@3", PassAtK(10, 4, 3), 1-20.0/120, 1e-12) // C(6,3)/C(10,3)
	near(t, "pass@k all", PassAtK(10, 8, 3), 1, 0)
	// Yao et al., τ-bench (2024): pass^k = C(c, k)/C(n, k).
	near(t, "pass^2", PassHatK(5, 3, 2), 3.0/10, 1e-12)
	near(t, "pass^k none", PassHatK(5, 1, 2), 0, 0)
	if !math.IsNaN(PassAtK(3, 1, 4)) || !math.IsNaN(PassHatK(3, 1, 0)) {
		t.Error("k outside 1…n has an estimate")
	}
}

// Expected values are R's p.adjust(p, "holm"); the fifteen p-values are Benjamini and Hochberg's
// own example (1995, section 3.1), in which Bonferroni and Holm reject three at 0.05.
func TestAdjust(t *testing.T) {
	ps := []float64{0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
		0.6528, 0.7590, 1.0000}
	rejected := func(adj []float64) (n int) {
		for _, p := range adj {
			if p <= 0.05 {
				n++
			}
		}
		return n
	}
	if n := rejected(Holm(ps)); n != 3 {
		t.Errorf("Holm rejects %d", n)
	}
	holm := Holm([]float64{0.04, 0.01, 0.03})
	for i, want := range []float64{0.06, 0.03, 0.06} {
		near(t, "Holm", holm[i], want, 1e-12)
	}
}

// Tango, "Equivalence test and confidence interval for the difference in proportions for the
// paired-sample design", Statistics in Medicine 17 (1998): at each end the score statistic is z,
// where the likelihood, given that difference, is largest; here it is searched. Without any
// disagreement the ends are ±z²/(n+z²).
func TestTango(t *testing.T) {
	z := quantile(0.95)
	statistic := func(b, c, n, d float64) float64 {
		best, at := math.Inf(-1), 0.0
		for i := range 200_000 {
			q := max(0, -d) + float64(i)/200_000*(1-math.Abs(d))/2 // the share of b; that of c is q + d
			if q <= 0 || q+d <= 0 || 1-2*q-d <= 0 {
				continue
			}
			if l := b*math.Log(q) + c*math.Log(q+d) + (n-b-c)*math.Log(1-2*q-d); l > best {
				best, at = l, q
			}
		}
		return (c - b - n*d) / math.Sqrt(n*(2*at+d-d*d))
	}
	for _, c := range [][3]float64{{1, 0, 44}, {12, 30, 220}, {2, 9, 20}, {3.5, 1.25, 17.5}} {
		iv := tango(c[0], c[1], c[2], z, 0.95)
		near(t, "statistic at the low end", statistic(c[0], c[1], c[2], iv.Low), z, 1e-3)
		near(t, "statistic at the high end", statistic(c[0], c[1], c[2], iv.High), -z, 1e-3)
	}
	iv := tango(0, 0, 20, z, 0.95)
	near(t, "none, low", iv.Low, -z*z/(20+z*z), 1e-9)
	near(t, "none, high", iv.High, z*z/(20+z*z), 1e-9)
}

func TestEstimate(t *testing.T) {
	for _, c := range []struct {
		vs        []Value
		method    string
		low, high float64
	}{
		{[]Value{{1, "a"}, {0, "b"}, {1, ""}}, ByMidP, 0.1320, 0.9833},
		{[]Value{{1, "a"}, {1, "b"}, {1, ""}}, ByWilson, 0.4385, 1},
		// three tasks are three tasks
		{[]Value{{1, "a"}, {1, "a"}, {1, "b"}, {1, "b"}, {1, "c"}, {1, "c"}}, ByWilson, 0.4385, 1},
		{[]Value{{0.5, "a"}, {0.5, "b"}}, ByWilson, 0.0945, 0.9055},
		{[]Value{{1, "a"}}, ByWilson, 0.2065, 1},
	} {
		e, ok := Estimate(c.vs, 0.95)
		if !ok || e.Method != c.method {
			t.Errorf("%v: %+v, want %s", c.vs, e, c.method)
			continue
		}
		near(t, "low", e.Interval.Low, c.low, 5e-5)
		near(t, "high", e.Interval.High, c.high, 5e-5)
	}
	if _, ok := Estimate(nil, 0.95); ok {
		t.Error("the mean of nothing")
	}
	for _, c := range []struct {
		vs     []Value
		method string // "": no interval
	}{
		{[]Value{{1, "a"}, {0, "a"}, {1, "b"}}, ByEffective},
		{[]Value{{1, "a"}, {0, "a"}}, ByEffective}, // one cluster
		{[]Value{{1, "a"}, {0, "a"}, {1, "b"}, {0, "b"}}, ByEffective},
		{[]Value{{0.5, "a"}, {1, "b"}}, ByEffective},
		{[]Value{{5, "a"}, {7, "b"}}, ByT},
		{[]Value{{5, "a"}, {5, "b"}}, ""},
		{[]Value{{5, "a"}, {-7, "a"}}, ""},
	} {
		e, _ := Estimate(c.vs, 0.95)
		if e.Method != c.method || (e.Interval == nil) != (c.method == "") {
			t.Errorf("%v: %+v, want %q", c.vs, e, c.method)
		}
		if iv := e.Interval; iv != nil && !(iv.Low <= e.Mean && e.Mean <= iv.High) {
			t.Errorf("%v: %v is not in %+v", c.vs, e.Mean, iv)
		}
		if iv := e.Interval; e.Method == ByEffective && (iv.Low < 0 || iv.High > 1) {
			t.Errorf("%v: %+v", c.vs, iv)
		}
	}
}

// pairs are n tasks of which only A got a right, only B b.
func pairs(n, a, b int) (ps []Pairing) {
	for i := range n {
		p := Pairing{Cluster: string(rune('a' + i))}
		switch {
		case i < a:
			p.A = 1
		case i < a+b:
			p.B = 1
		}
		ps = append(ps, p)
	}
	return ps
}

func TestVerdicts(t *testing.T) {
	scale := func(ps []Pairing, by float64) []Pairing {
		for i := range ps {
			ps[i].A, ps[i].B = by*ps[i].A, by*ps[i].B
		}
		return ps
	}
	for _, c := range []struct {
		name string
		sets [][]Pairing
		want []Verdict
	}{
		{"one pair", [][]Pairing{pairs(1, 0, 1)}, []Verdict{TooFew}},
		{"four tasks can never show anything", [][]Pairing{pairs(4, 0, 4)}, []Verdict{TooFew}},
		{"five can", [][]Pairing{pairs(5, 0, 5)}, []Verdict{BBetter}},
		{"the other way round", [][]Pairing{pairs(5, 5, 0)}, []Verdict{ABetter}},
		{"not with four of five", [][]Pairing{pairs(5, 0, 4)}, []Verdict{NotShown}},
		{"five are too few for two comparisons", [][]Pairing{pairs(5, 0, 5), pairs(5, 0, 5)},
			[]Verdict{TooFew, TooFew}},
		{"six are enough", [][]Pairing{pairs(6, 0, 6), pairs(6, 6, 0)}, []Verdict{BBetter, ABetter}},
		{"Holm: the second is held against 0.05", [][]Pairing{pairs(20, 0, 9), pairs(20, 0, 5)},
			[]Verdict{BBetter, BBetter}},
		{"not where the first is not shown", [][]Pairing{pairs(20, 0, 4), pairs(20, 5, 0)},
			[]Verdict{NotShown, NotShown}},
		{"equal arms", [][]Pairing{pairs(50, 5, 5)}, []Verdict{NotShown}},
		{"no disagreement", [][]Pairing{pairs(50, 0, 0)}, []Verdict{NotShown}},
		{"half a point each time, of twelve tasks", [][]Pairing{scale(pairs(12, 0, 12), 0.5)}, []Verdict{BBetter}},
		{"scores outside of 0 … 1 that do not vary", [][]Pairing{scale(pairs(12, 0, 12), 3)}, []Verdict{TooFew}},
		{"scores outside of 0 … 1", [][]Pairing{scale(pairs(12, 0, 11), 3)}, []Verdict{BBetter}},
	} {
		for i, p := range Compare(c.sets, 0.95) {
			if p.Verdict != c.want[i] {
				t.Errorf("%s: %+v, want %s", c.name, p, c.want[i])
			}
			if _, err := json.Marshal(p); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
	got := Compare([][]Pairing{nil, pairs(6, 0, 6), nil}, 0.95)
	if got[0] != nil || got[2] != nil || got[1].Together != 1 || got[1].Verdict != BBetter {
		t.Errorf("sets without pairs count: %+v", got[1])
	}
}

// Verdict, p-value and interval agree, whatever the data, and the order of the data does not
// matter.
func TestAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sets [][]Pairing
		values := rapid.SampledFrom([][]float64{{0, 1}, {0, 0.25, 1}, {0, 0.5, 0.51}, {-2, 0, 3}}).Draw(t, "scores")
		for range rapid.IntRange(1, 40).Draw(t, "sets") {
			n := rapid.IntRange(0, 40).Draw(t, "tasks")
			var ps []Pairing
			for i := range n {
				for range rapid.IntRange(1, 3).Draw(t, "repeats") {
					ps = append(ps, Pairing{A: rapid.SampledFrom(values).Draw(t, "a"),
						B: rapid.SampledFrom(values).Draw(t, "b"), Cluster: string(rune('A' + i))})
				}
			}
			sets = append(sets, ps)
		}
		got := Compare(sets, 0.95)
		for i := range sets {
			slices.Reverse(sets[i])
		}
		x, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if y, _ := json.Marshal(Compare(sets, 0.95)); string(x) != string(y) {
			t.Errorf("another order:\n%s\n%s", x, y)
		}
		for _, p := range got {
			if p == nil {
				continue
			}
			if p.Interval == nil {
				if p.Verdict != TooFew || p.P != nil {
					t.Errorf("%+v", p)
				}
				continue
			}
			iv, shown := p.Interval, *p.Holm <= 1-0.95
			switch p.Verdict {
			case BBetter:
				if !shown || p.Diff <= 0 || iv.Low < 0 || iv.High <= 0 {
					t.Errorf("%+v, interval %+v", p, iv)
				}
			case ABetter:
				if !shown || p.Diff >= 0 || iv.High > 0 || iv.Low >= 0 {
					t.Errorf("%+v, interval %+v", p, iv)
				}
			default:
				if shown || iv.Low > 0 || iv.High < 0 {
					t.Errorf("%+v, interval %+v", p, iv)
				}
			}
			if iv.Low > p.Diff+tiny || iv.High < p.Diff-tiny {
				t.Errorf("%v is not in %+v", p.Diff, iv)
			}
		}
	})
}

// McNemar's mid-p never shows what Tango's interval at the usual levels leaves open, so that no end
// of one has to be moved in to 0.
func TestMcNemarInTango(t *testing.T) {
	for n := 1; n <= 60; n++ {
		for b := 0; b <= n/2; b++ {
			for _, m := range []float64{1, 2, 3, 5} {
				level := 1 - 0.05/m
				if McNemar(b, n-b) <= 1-level && (float64(n-2*b))/math.Sqrt(float64(n)) < quantile(level) {
					t.Errorf("%d and %d of %v: mid-p %v, score %v", b, n-b, m, McNemar(b, n-b),
						float64(n-2*b)/math.Sqrt(float64(n)))
				}
			}
		}
	}
}
