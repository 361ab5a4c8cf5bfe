// Coverage measures the statistics of package stats by simulation: how often a difference is shown
// between equal arms, and how often intervals contain the true value, for few and many tasks,
// repeats, rates, arms, clusters of tasks and fractional scores.
//
//	go run ./scripts/coverage                      # all cells
//	go run ./scripts/coverage -every 7 -plays 200  # a part of them, less exact
//	go run ./scripts/coverage -methods             # alternatives to the method used
//
// It exits with status 1 if a promise of docs/statistics.md is not kept.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/reports/stats"
	"github.com/evalrun/evalrun/reports/stats/statstest"
)

var (
	tasks   = []int{5, 7, 10, 20, 50, 200}
	repeats = []int{1, 2, 4, 8}
)

func main() {
	plays := flag.Int("plays", 1000, "how often each cell is played")
	methods := flag.Bool("methods", false, "compare methods for differences")
	stride := flag.Int("every", 1, "play each N-th cell only")
	verbose := flag.Bool("v", false, "print each cell")
	flag.Parse()
	if *methods {
		compareMethods(*plays, *stride)
		return
	}
	fmt.Println("| tasks | what | cells | false alarms, mean | worst | differences covered, mean | worst | means " +
		"covered, mean | worst |")
	fmt.Println("|--:|---|--:|--:|--:|--:|--:|--:|--:|")
	var results []statstest.Result
	for _, n := range tasks {
		cells := statstest.Cells([]int{n}, repeats)
		rs := each(every(cells, *stride), func(c statstest.Cell) statstest.Result { return statstest.Run(c, *plays) })
		for _, g := range groups {
			table(n, g.name, slices.DeleteFunc(slices.Clone(rs),
				func(r statstest.Result) bool { return !g.of(r.Cell) }))
		}
		results = append(results, rs...)
	}
	if *verbose {
		for _, r := range results {
			fmt.Printf("%s: alarms %d shown %d covered %d mean %d of %d\n", r.Cell, r.Alarms, r.Shown, r.Covered,
				r.Mean, r.Plays)
		}
	}
	fmt.Printf("\n%d cells, %d plays each\n", len(results), *plays)
	if !kept(results) {
		os.Exit(1)
	}
}

func every(cells []statstest.Cell, n int) (some []statstest.Cell) {
	for i := 0; i < len(cells); i += n {
		some = append(some, cells[i])
	}
	return some
}

var groups = []struct {
	name string
	of   func(statstest.Cell) bool
}{
	{"one trial a task", func(c statstest.Cell) bool {
		return c.Shape == statstest.Plain && c.Arms == 2 && c.Repeats == 1
	}},
	{"2 to 8 repeats", func(c statstest.Cell) bool {
		return c.Shape == statstest.Plain && c.Arms == 2 && c.Repeats > 1
	}},
	{"clusters of tasks", func(c statstest.Cell) bool {
		return c.Shape == statstest.Grouped || c.Shape == statstest.Lopsided
	}},
	{"fractional scores", func(c statstest.Cell) bool { return c.Shape == statstest.Fraction }},
	{"3 and 6 arms", func(c statstest.Cell) bool { return c.Arms > 2 }},
}

func each[T any](cells []statstest.Cell, run func(statstest.Cell) T) []T {
	out := make([]T, len(cells))
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				out[i] = run(cells[i])
			}
		})
	}
	for i := range cells {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

func table(n int, name string, rs []statstest.Result) {
	share := func(of func(statstest.Result) (int, bool), worst func(a, b float64) float64) (string, string) {
		var sum float64
		var worstOf float64
		cells := 0
		for _, r := range rs {
			k, ok := of(r)
			if !ok {
				continue
			}
			x := float64(k) / float64(r.Plays)
			if cells == 0 {
				worstOf = x
			}
			worstOf = worst(worstOf, x)
			sum += x
			cells++
		}
		return fmt.Sprintf("%.1f %%", 100*sum/float64(cells)), fmt.Sprintf("%.1f %%", 100*worstOf)
	}
	alarms, most := share(func(r statstest.Result) (int, bool) { return r.Alarms, r.Null }, math.Max)
	covered, least := share(func(r statstest.Result) (int, bool) { return r.Covered, true }, math.Min)
	mean, leastMean := share(func(r statstest.Result) (int, bool) { return r.Mean, true }, math.Min)
	fmt.Printf("| %d | %s | %d | %s | %s | %s | %s | %s | %s |\n", n, name, len(rs), alarms, most, covered, least, mean,
		leastMean)
}

// kept compares the results with the promises, allowing for three standard errors of the
// simulation.
func kept(rs []statstest.Result) bool {
	ok := true
	for _, r := range rs {
		for _, p := range r.Broken() {
			fmt.Printf("NOT KEPT: %s: %s\n", r.Cell, p)
			ok = false
		}
	}
	return ok
}

// compareMethods evaluates alternative methods on the same simulated plays: a percentile bootstrap
// and t on cluster means.
func compareMethods(plays, stride int) {
	type tally struct{ cells, alarms, nulls, most, covered, least int }
	type method struct {
		name string
		of   func(set []stats.Pairing, rng *rand.Rand) (low, high float64)
	}
	ms := []method{
		{"percentile bootstrap over clusters", bootstrap},
		{"t on cluster means, G − 1", tOnMeans},
		{"this one", func(set []stats.Pairing, _ *rand.Rand) (float64, float64) {
			iv := stats.Compare([][]stats.Pairing{set}, statstest.Level)[0].Interval
			return iv.Low, iv.High
		}},
	}
	cells := slices.DeleteFunc(statstest.Cells([]int{5, 7, 10, 20, 50}, []int{1, 4}), func(c statstest.Cell) bool {
		return c.Arms > 2 || c.Shape == statstest.Grouped || c.Shape == statstest.Lopsided
	})
	type result struct {
		cell    statstest.Cell
		null    bool
		alarms  []int
		covered []int
	}
	rs := each(every(cells, stride), func(c statstest.Cell) result {
		p, rng := statstest.NewPlayer(c), rand.New(rand.NewPCG(1, 2))
		r := result{c, p.Truth(0) == 0, make([]int, len(ms)), make([]int, len(ms))}
		for range plays {
			sets, _ := p.Play()
			for i, m := range ms {
				low, high := m.of(sets[0], rng)
				if low > 0 || high < 0 {
					r.alarms[i]++
				}
				if low-1e-9 <= p.Truth(0) && p.Truth(0) <= high+1e-9 {
					r.covered[i]++
				}
			}
		}
		return r
	})
	fmt.Println("| tasks | method | false alarms, mean | worst | covered, mean | worst |")
	fmt.Println("|--:|---|--:|--:|--:|--:|")
	for _, n := range []int{5, 7, 10, 20, 50} {
		for i, m := range ms {
			t := tally{least: plays}
			for _, r := range rs {
				if r.cell.Tasks != n {
					continue
				}
				t.cells++
				t.covered += r.covered[i]
				t.least = min(t.least, r.covered[i])
				if r.null {
					t.nulls++
					t.alarms += r.alarms[i]
					t.most = max(t.most, r.alarms[i])
				}
			}
			pc := func(k, cells int) string { return fmt.Sprintf("%.1f %%", 100*float64(k)/float64(cells*plays)) }
			fmt.Printf("| %d | %s | %s | %s | %s | %s |\n", n, m.name, pc(t.alarms, t.nulls), pc(t.most, 1),
				pc(t.covered, t.cells), pc(t.least, 1))
		}
	}
}

// clusterMeans returns the means of clusters of equal size.
func clusterMeans(set []stats.Pairing) []float64 {
	sums, ns := map[string]float64{}, map[string]float64{}
	var order []string
	for _, p := range set {
		if ns[p.Cluster] == 0 {
			order = append(order, p.Cluster)
		}
		sums[p.Cluster] += p.B - p.A
		ns[p.Cluster]++
	}
	var out []float64
	for _, k := range order {
		out = append(out, sums[k]/ns[k])
	}
	return out
}

func bootstrap(set []stats.Pairing, rng *rand.Rand) (float64, float64) {
	xs := clusterMeans(set)
	draws := make([]float64, 1000)
	for i := range draws {
		for range xs {
			draws[i] += xs[rng.IntN(len(xs))] / float64(len(xs))
		}
	}
	slices.SortFunc(draws, cmp.Compare)
	return draws[25], draws[974]
}

func tOnMeans(set []stats.Pairing, _ *rand.Rand) (float64, float64) {
	xs := clusterMeans(set)
	n, m, v := float64(len(xs)), 0.0, 0.0
	for _, x := range xs {
		m += x / n
	}
	for _, x := range xs {
		v += (x - m) * (x - m) / (n - 1)
	}
	t := map[int]float64{5: 2.7764, 7: 2.4469, 10: 2.2622, 20: 2.0930, 50: 2.0096}[len(xs)]
	return m - t*math.Sqrt(v/n), m + t*math.Sqrt(v/n)
}
