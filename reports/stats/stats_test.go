package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(t *testing.T, what string, got, want, eps float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > eps {
		t.Errorf("%s = %v, want %v ± %v", what, got, want, eps)
	}
}

// Newcombe, "Two-sided confidence intervals for the single proportion: comparison of seven methods", Statistics in
// Medicine 17 (1998), Table I: method 3 (score) and method 5 (Clopper–Pearson), 95 %.
func TestNewcombe(t *testing.T) {
	for _, c := range []struct {
		k, n           int
		wLow, wHigh    float64
		cpLow, cpHigh_ float64
	}{
		{81, 263, 0.2553, 0.3662, 0.2527, 0.3676},
		{15, 148, 0.0624, 0.1605, 0.0578, 0.1617},
		{0, 20, 0.0000, 0.1611, 0.0000, 0.1684},
		{1, 29, 0.0061, 0.1718, 0.0009, 0.1776},
	} {
		w, cp := Wilson(c.k, c.n, 0.95), ClopperPearson(c.k, c.n, 0.95)
		near(t, "Wilson low", w.Low, c.wLow, 5e-5)
		near(t, "Wilson high", w.High, c.wHigh, 5e-5)
		near(t, "Clopper-Pearson low", cp.Low, c.cpLow, 5e-5)
		near(t, "Clopper-Pearson high", cp.High, c.cpHigh_, 5e-5)
	}
}

// The rule for no events: Clopper–Pearson's upper bound is 1 − (α/2)^(1/n) (Louis 1981; "rule of three" one-sided).
func TestNoEvents(t *testing.T) {
	for _, n := range []int{1, 3, 30, 500} {
		near(t, "upper", ClopperPearson(0, n, 0.95).High, 1-math.Pow(0.025, 1/float64(n)), 1e-9)
		near(t, "lower", ClopperPearson(n, n, 0.95).Low, math.Pow(0.025, 1/float64(n)), 1e-9)
		if w := Wilson(n, n, 0.95); w.High != 1 || Wilson(0, n, 0.95).Low != 0 {
			t.Errorf("Wilson(%d, %d) leaves [0, 1] or does not reach its end: %v", n, n, w)
		}
	}
	if iv := Wilson(0, 0, 0.95); iv.Low != 0 || iv.High != 1 {
		t.Errorf("of nothing: %v", iv)
	}
}

// Fagerland, Lydersen, Laake, "The McNemar test for binary matched-pairs data", BMC Med Res Methodol 13:91 (2013): airway
// hyper-responsiveness before and after transplantation (Bentur et al.), n12 = 1, n21 = 7, exact conditional
// 0.0703, mid-p 0.0391; complete response before and after consolidation (Cavo et al.), 6 and 16, exact 0.0525, mid-p 0.0347.
func TestMcNemar(t *testing.T) {
	near(t, "exact 1/7", McNemarExact(1, 7), 0.0703, 5e-5)
	near(t, "mid-p 1/7", McNemar(1, 7), 0.0391, 5e-5)
	near(t, "exact 6/16", McNemarExact(6, 16), 0.0525, 5e-5)
	near(t, "mid-p 6/16", McNemar(16, 6), 0.0347, 5e-5)
	near(t, "no disagreement", McNemar(0, 0), 1, 0)
	near(t, "equal", McNemar(1, 1), 0.75, 1e-12) // their supplement: 1 − f/2, f = 1/2
	// Agresti, Categorical Data Analysis: approval ratings, 86 and 150 changed; z² = 17.36 without correction.
	if p := McNemar(86, 150); p < 2e-5 || p > 5e-5 {
		t.Errorf("mid-p 86/150 = %v", p)
	}
	near(t, "huge", McNemar(500_000, 500_000), 1, 1e-3) // no underflow
}

// EleutherAI/lm-evaluation-harness#3868 reports 220 tasks with p = 0.080 by the unpaired z-test and 0.008 by McNemar; it does
// not print the table. One that has these figures: 122 right against 140, 12 and 30 of them alone.
func TestPairingMatters(t *testing.T) {
	p1, p2 := 122.0/220, 140.0/220
	z := (p2 - p1) / math.Sqrt(p1*(1-p1)/219+p2*(1-p2)/219)
	near(t, "unpaired p", math.Erfc(z/math.Sqrt2), 0.080, 5e-4)
	near(t, "exact McNemar", McNemarExact(12, 30), 0.008, 5e-4)
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
	got, ok := Pair(ps, 0.95, 1)
	if !ok || got.OnlyA != 12 || got.OnlyB != 30 || got.N != 220 || got.Clusters != 220 {
		t.Fatalf("%+v", got)
	}
	near(t, "difference", got.Diff, 18.0/220, 1e-12)
	if got.Interval.Low <= 0 || *got.P > 0.01 {
		t.Errorf("the paired comparison misses what is there: %+v", got)
	}
	// The paired error is √((b+c)/n − d²)/√n, up to n−1.
	near(t, "paired SE", *got.SE, math.Sqrt((42.0/220-got.Diff*got.Diff)/219), 1e-12)
	near(t, "detectable", *got.Detectable, 2.8016*(*got.SE), 1e-4)
	// SE² = SE_A² + SE_B² − 2·r·SE_A·SE_B (Miller, section 4)
	a, b := math.Sqrt(p1*(1-p1)/219), math.Sqrt(p2*(1-p2)/219)
	near(t, "SE from correlation", *got.SE, math.Sqrt(a*a+b*b-2**got.Corr*a*b), 1e-12)
}

// Miller, arXiv 2411.00640, section 5: ω² = 1/9, δ = 3 points, α = 0.05, power 80 % take about 969 questions without
// answer noise.
func TestMillerSampleSize(t *testing.T) {
	near(t, "n", SampleSize(0.03, 1.0/9, 0, 0.05, 0.8), 969, 0.5)
	near(t, "with one answer each, σ² = 1/6", SampleSize(0.03, 1.0/9, 2.0/6, 0.05, 0.8), 3876, 2)
	// Read backwards it is the smallest effect that one can see.
	near(t, "δ", Detectable(math.Sqrt(1.0/9/969), 0.05, 0.8), 0.03, 1e-4)
}

// Miller's clustered formula, written out over all pairs; the two figures are numpy's on the same nine values.
func TestClusteredSE(t *testing.T) {
	vs := []Value{{1, "a"}, {1, "a"}, {0, "a"}, {1, "b"}, {0, "b"}, {0, "c"}, {1, "c"}, {0.5, ""}, {0.25, ""}}
	xs := values(vs)
	m, n := Mean(xs), float64(len(xs))
	var cross float64
	for i := range vs {
		for j := range vs {
			if i != j && vs[i].Cluster != "" && vs[i].Cluster == vs[j].Cluster {
				cross += (xs[i] - m) * (xs[j] - m)
			}
		}
	}
	near(t, "clustered", ClusteredSE(vs), math.Sqrt(Variance(xs)/n+cross/(n*n)), 1e-12)
	near(t, "clustered (numpy)", ClusteredSE(vs), 0.07725303093076438, 1e-12)
	near(t, "plain (numpy)", SE(xs), 0.15835769793043583, 1e-12)
	for i := range vs {
		vs[i].Cluster = ""
	}
	near(t, "alone", ClusteredSE(vs), SE(xs), 1e-15)
	// k copies of each value are no new evidence: the error must not shrink by √k.
	var copies []Value
	for i, x := range xs {
		for range 4 {
			copies = append(copies, Value{x, string(rune('a' + i))})
		}
	}
	if got := ClusteredSE(copies) / SE(xs); got < 0.9 || got > 1.1 {
		t.Errorf("four copies change the error by a factor of %v", got)
	}
	if !math.IsNaN(ClusteredSE([]Value{{1, "a"}, {0, "a"}})) {
		t.Error("one cluster has an error")
	}
}

// Chen et al., "Evaluating Large Language Models Trained on Code" (2021): 1 − C(n−c, k)/C(n, k); for k = 1 it is c/n.
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

// Expected values are R's p.adjust(p, "holm") and p.adjust(p, "BH"); the fifteen p-values are Benjamini and Hochberg's own
// example (1995, section 3.1), in which Bonferroni and Holm reject three and BH rejects four at 0.05.
func TestAdjust(t *testing.T) {
	ps := []float64{0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000}
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
	if n := rejected(BenjaminiHochberg(ps)); n != 4 {
		t.Errorf("BH rejects %d", n)
	}
	holm := Holm([]float64{0.04, 0.01, 0.03})
	for i, want := range []float64{0.06, 0.03, 0.06} {
		near(t, "Holm", holm[i], want, 1e-12)
	}
	bh := BenjaminiHochberg([]float64{0.04, 0.01, 0.03})
	for i, want := range []float64{0.04, 0.03, 0.04} {
		near(t, "BH", bh[i], want, 1e-12)
	}
}

func TestBootstrap(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var vs []Value
	for i := range 300 {
		vs = append(vs, Value{X: rng.NormFloat64(), Cluster: string(rune('a' + i%150))})
	}
	iv := Bootstrap(vs, 0.95, 42)
	// For the mean of many values the percentile interval is the normal one.
	m, se := Mean(values(vs)), ClusteredSE(vs)
	near(t, "low", iv.Low, m-1.96*se, 0.1*se)
	near(t, "high", iv.High, m+1.96*se, 0.1*se)

	// Same bytes whatever the order; other bytes with another seed.
	want, _ := json.Marshal(iv)
	rng.Shuffle(len(vs), func(i, j int) { vs[i], vs[j] = vs[j], vs[i] })
	if got, _ := json.Marshal(Bootstrap(vs, 0.95, 42)); string(got) != string(want) {
		t.Errorf("another order: %s, want %s", got, want)
	}
	if got, _ := json.Marshal(Bootstrap(vs, 0.95, 43)); string(got) == string(want) {
		t.Error("another seed gave the same")
	}
	// Golden: a change of the generator or of the order of draws would change every report.
	vs = nil
	for i := range 20 {
		vs = append(vs, Value{X: math.Sqrt(float64(i)), Cluster: string(rune('a' + i%9))})
	}
	got, _ := json.Marshal(Bootstrap(vs, 0.95, 1))
	if want := `{"low":2.6298306127081172,"high":3.1046727813182,"level":0.95}`; string(got) != want {
		t.Errorf("golden: %s, want %s", got, want)
	}
}

// Efron and Tibshirani, An Introduction to the Bootstrap (1993), Table 2.1: survival of 7 treated mice, mean 86.86, standard error
// 25.24; the bootstrap's is about 23.4 (√(6/7) of it), and so is a quarter of its interval's width, roughly.
func TestMice(t *testing.T) {
	var vs []Value
	for _, x := range []float64{94, 197, 16, 38, 99, 141, 23} {
		vs = append(vs, Value{X: x})
	}
	near(t, "mean", Mean(values(vs)), 86.86, 0.005)
	near(t, "SE", SE(values(vs)), 25.24, 0.005)
	iv := Bootstrap(vs, 0.95, 1)
	near(t, "width/3.92", (iv.High-iv.Low)/3.92, 23.36, 1.2)
}

func TestMean01(t *testing.T) {
	for _, c := range []struct {
		vs     []Value
		method string
	}{
		{[]Value{{1, "a"}, {0, "b"}, {1, ""}}, ByWilson},
		{[]Value{{1, "a"}, {0, "a"}, {1, "b"}}, ByBootstrap},
		{[]Value{{0.5, "a"}, {1, "b"}}, ByBootstrap},
		{[]Value{{1, "a"}, {1, "a"}, {1, "b"}}, ByClusters},
		{nil, ByWilson},
	} {
		iv, method := Mean01(c.vs, 0.95, 1)
		if method != c.method || iv.High <= iv.Low {
			t.Errorf("%v: %v by %s, want %s", c.vs, iv, method, c.method)
		}
	}
	// Two tasks, played fifty times each, are two tasks.
	var vs []Value
	for range 50 {
		vs = append(vs, Value{1, "a"}, Value{1, "b"})
	}
	if iv, _ := Mean01(vs, 0.95, 1); iv.Low > 0.4 {
		t.Errorf("two tasks give %v", iv)
	}
}

func TestPair(t *testing.T) {
	if _, ok := Pair(nil, 0.95, 1); ok {
		t.Error("nothing was compared")
	}
	one, ok := Pair([]Pairing{{A: 1, B: 1}}, 0.95, 1)
	if !ok || one.SE != nil || one.Corr != nil || one.Detectable != nil {
		t.Errorf("one pair: %+v", one)
	}
	if _, err := json.Marshal(one); err != nil {
		t.Error(err)
	}
	if one.Interval.Low > -0.5 || one.Interval.High < 0.5 {
		t.Errorf("one pair that agrees says nearly nothing, but the interval is %v", one.Interval)
	}
	// Order does not matter.
	rng := rand.New(rand.NewPCG(1, 2))
	var ps []Pairing
	for i := range 60 {
		ps = append(ps, Pairing{rng.Float64(), rng.Float64(), string(rune('a' + i/3))})
	}
	a, _ := Pair(ps, 0.9, 5)
	slices.Reverse(ps)
	b, _ := Pair(ps, 0.9, 5)
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if string(x) != string(y) {
		t.Errorf("%s\n%s", x, y)
	}
	if a.P != nil || a.Clusters != 20 {
		t.Errorf("%+v", a)
	}
}

// Coverage: of 95 % intervals about 95 % hold the truth, also for clustered values where the plain interval does not.
func TestCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	held, plain := 0, 0
	const runs = 100
	for range runs {
		var vs, alone []Value
		for c := range 60 {
			p := rng.Float64() // of the task
			for range 5 {
				x := 0.0
				if rng.Float64() < p {
					x = 1
				}
				vs = append(vs, Value{x, string(rune('A' + c))})
				alone = append(alone, Value{X: x})
			}
		}
		if iv := Bootstrap(vs, 0.95, 1); iv.Low <= 0.5 && 0.5 <= iv.High {
			held++
		}
		if iv, _ := Mean01(alone, 0.95, 1); iv.Low <= 0.5 && 0.5 <= iv.High {
			plain++
		}
	}
	if held < runs*88/100 {
		t.Errorf("clustered intervals held %d of %d", held, runs)
	}
	if plain >= held {
		t.Errorf("plain intervals held %d, clustered %d", plain, held)
	}
}
