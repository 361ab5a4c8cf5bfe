// Package statstest measures what package stats promises, on arms whose true rates are known: how
// often a difference is shown where there is none, and how often intervals hold the truth.
// scripts/coverage runs all cells; a test of package stats a part of them.
package statstest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mathext"

	"github.com/evalrun/evalrun/reports/stats"
)

// Level is the confidence that is measured.
const Level = 0.95

// A Cell is an experiment that is played many times over.
type Cell struct {
	Tasks   int // clusters, where tasks are Grouped
	Repeats int
	A, B    float64 // true rates of the first arm, and of every second one after it; the others have A
	Spread  Spread  // of the tasks' own rates
	// a task is as hard for all arms, in order; else their rates for it have nothing to do with
	// each other
	Shared bool
	Shape  Shape
	Arms   int // the first is compared with each other one
}

// Spread is the sum of the parameters of the Beta distribution that tasks' rates are drawn from; 0:
// all have the arm's.
type Spread float64

const (
	Same    Spread = 0
	Varied  Spread = 2
	Extreme Spread = 0.5 // most tasks are always right or always wrong
)

// Shape is what scores look like.
type Shape int

const (
	Plain    Shape = iota // 0 or 1
	Grouped               // 0 or 1; from 1 to 9 tasks a cluster, half of them with its rate
	Lopsided              // 0 or 1; the first cluster has as many tasks as half of the others, all with its rate
	Fraction              // 0, 1/4 … 1
)

func (s Shape) String() string { return [...]string{"plain", "grouped", "lopsided", "fraction"}[s] }

func (c Cell) String() string {
	return fmt.Sprintf("%s n=%d repeats=%d A=%g B=%g spread=%g shared=%v arms=%d", c.Shape, c.Tasks, c.Repeats, c.A,
		c.B, float64(c.Spread), c.Shared, c.Arms)
}

// A Result is what became of a cell. False alarms are counted once a play, whatever the number of
// arms.
type Result struct {
	Cell
	Plays    int
	Null     bool // some arm has the rate of the first one
	Alarms   int  // plays in which a difference is shown where there is none, or the other way round
	Shown    int  // plays in which a true difference is shown
	Covered  int  // plays in which all intervals of differences hold the truth
	Mean     int  // plays in which the interval of the last arm's mean does
	Disagree int  // plays in which a verdict, a p-value and an interval do not agree
}

// Run plays a cell. The same cell and number of plays give the same result.
func Run(c Cell, plays int) Result {
	r := Result{Cell: c, Plays: plays}
	p := NewPlayer(c)
	for range plays {
		sets, last := p.Play()
		var alarm, shown, disagree bool
		covered := true
		for i, x := range stats.Compare(sets, Level) {
			truth := p.Truth(i)
			r.Null = r.Null || truth == 0
			switch x.Verdict {
			case stats.BBetter:
				alarm, shown = alarm || truth <= 0, shown || truth > 0
			case stats.ABetter:
				alarm, shown = alarm || truth >= 0, shown || truth < 0
			}
			disagree = disagree || !agrees(x)
			covered = covered && holds(x.Interval, truth)
		}
		e, _ := stats.Estimate(last, Level)
		r.Alarms += count(alarm)
		r.Shown += count(shown)
		r.Covered += count(covered)
		r.Disagree += count(disagree)
		r.Mean += count(holds(e.Interval, p.rates[len(p.rates)-1].mean))
	}
	return r
}

func holds(iv *stats.Interval, x float64) bool {
	return iv != nil && iv.Low-1e-9 <= x && x <= iv.High+1e-9
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func agrees(x *stats.Paired) bool {
	shown := *x.Holm <= 1-Level
	switch x.Verdict {
	case stats.BBetter:
		return shown && x.Diff > 0 && x.Interval.Low >= 0
	case stats.ABetter:
		return shown && x.Diff < 0 && x.Interval.High <= 0
	}
	return !shown && x.Interval.Low <= 0 && x.Interval.High >= 0
}

// A Player plays a cell.
type Player struct {
	c     Cell
	rng   *rand.Rand
	rates []rates // by arm
	names []string

	sets [][]stats.Pairing // kept for their memory
	last []stats.Value
}

// NewPlayer prepares a cell. What it plays depends on the cell alone.
func NewPlayer(c Cell) *Player {
	p := &Player{c: c, rng: rand.New(rand.NewPCG(
		uint64(c.Tasks*1000+c.Repeats*100+c.Arms*10+int(c.Shape)*2+count(c.Shared)),
		math.Float64bits(c.A+100*c.B+10_000*float64(c.Spread))))}
	a, b := newRates(c.A, c.Spread), newRates(c.B, c.Spread)
	for i := range max(2, c.Arms) {
		p.rates = append(p.rates, [2]rates{a, b}[i%2])
	}
	p.sets = make([][]stats.Pairing, len(p.rates)-1)
	for i := range c.Tasks {
		p.names = append(p.names, fmt.Sprint("task-", i))
	}
	return p
}

// Truth is the true difference of comparison i.
func (p *Player) Truth(i int) float64 { return p.rates[i+1].mean - p.rates[0].mean }

// Play plays once: the first arm with each other one, and the values of the last arm. They hold
// until the next Play.
func (p *Player) Play() (sets [][]stats.Pairing, last []stats.Value) {
	sets, last = p.sets, p.last[:0]
	for j := range sets {
		sets[j] = sets[j][:0]
	}
	hard, at := make([]int, len(p.rates)), make([]int, len(p.rates))
	xs := make([]float64, len(p.rates))
	for i := range p.c.Tasks {
		tasks := 1
		if p.c.Shape == Grouped {
			tasks = int(math.Exp(p.rng.Float64() * math.Log(10)))
		}
		if p.c.Shape == Lopsided && i == 0 {
			tasks = p.c.Tasks / 2
		}
		p.draw(hard)
		for range tasks {
			copy(at, hard)
			if p.c.Shape == Grouped && p.rng.IntN(2) == 0 {
				p.draw(at)
			}
			for range p.c.Repeats {
				for a := range p.rates {
					xs[a] = p.score(p.rates[a].of[at[a]])
				}
				for j := range sets {
					sets[j] = append(sets[j], stats.Pairing{A: xs[0], B: xs[j+1], Cluster: p.names[i]})
				}
				last = append(last, stats.Value{X: xs[len(xs)-1], Cluster: p.names[i]})
			}
		}
	}
	p.last = last
	return sets, last
}

// draw draws how hard a task is for each arm.
func (p *Player) draw(at []int) {
	for a := range at {
		at[a] = p.rng.IntN(quantiles)
		if p.c.Shared {
			at[a] = at[0]
		}
	}
}

func (p *Player) score(rate float64) float64 {
	throws := 1
	if p.c.Shape == Fraction {
		throws = 4
	}
	hits := 0
	for range throws {
		hits += count(p.rng.Float64() < rate)
	}
	return float64(hits) / float64(throws)
}

// quantiles is how finely the tasks' rates are drawn.
const quantiles = 512

// rates are the tasks' rates for an arm, in order, with their true mean.
type rates struct {
	of   []float64
	mean float64
}

func newRates(mean float64, s Spread) rates {
	r := rates{of: make([]float64, quantiles)}
	for i := range r.of {
		r.of[i] = mean
		if s != Same {
			r.of[i] = mathext.InvRegIncBeta(mean*float64(s), (1-mean)*float64(s), (float64(i)+0.5)/quantiles)
		}
		r.mean += r.of[i] / quantiles
	}
	return r
}

// Cells are all cells with a number of tasks and repeats.
func Cells(tasks, repeats []int) (cells []Cell) {
	pairs := [][2]float64{
		{0.05, 0.05}, {0.2, 0.2}, {0.5, 0.5}, {0.8, 0.8}, {0.95, 0.95}, // equal arms
		{0.05, 0.1}, {0.05, 0.3}, {0.2, 0.5}, {0.5, 0.65}, {0.8, 0.95}, {0.9, 0.95}, {0.05, 0.95},
	}
	for _, n := range tasks {
		for _, k := range repeats {
			for _, r := range pairs {
				for _, s := range []Spread{Same, Varied, Extreme} {
					for _, shared := range []bool{false, true} {
						if s == Same && shared {
							continue // as not shared
						}
						c := Cell{Tasks: n, Repeats: k, A: r[0], B: r[1], Spread: s, Shared: shared, Arms: 2}
						cells = append(cells, c)
						if s == Varied && (k == 1 || k == 4) {
							for _, shape := range []Shape{Grouped, Lopsided, Fraction} {
								d := c
								d.Shape = shape
								cells = append(cells, d)
							}
							for _, arms := range []int{3, 6} {
								d := c
								d.Arms = arms
								cells = append(cells, d)
							}
						}
					}
				}
			}
		}
	}
	return slices.Clip(cells)
}

// Broken says which promises of docs/statistics.md a result does not keep, where three standard
// errors of the simulation are allowed.
func (r Result) Broken() (broken []string) {
	plays := float64(r.Plays)
	within := func(p float64) float64 { return 3 * math.Sqrt(p*(1-p)/plays) }
	if x := float64(r.Alarms) / plays; r.Null && x > 0.05+within(0.05) {
		broken = append(broken, fmt.Sprintf("false alarms in %.1f %% of plays", 100*x))
	}
	for _, c := range []struct {
		name string
		n    int
	}{{"differences", r.Covered}, {"the mean", r.Mean}} {
		if x := float64(c.n) / plays; r.Tasks >= 10 && x < 0.93-within(0.93) {
			broken = append(broken, fmt.Sprintf("intervals of %s hold the truth in %.1f %% of plays", c.name, 100*x))
		}
	}
	if r.Disagree > 0 {
		broken = append(broken, fmt.Sprintf("verdict and interval do not agree in %d plays", r.Disagree))
	}
	return broken
}
