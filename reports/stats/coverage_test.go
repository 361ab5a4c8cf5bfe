package stats_test

import (
	"testing"

	"github.com/evalrun/evalrun/reports/stats/statstest"
)

// A sample of the cells of scripts/coverage: false alarms in at most 5 % of comparisons, intervals
// that hold the truth in at least 93 % from 10 clusters on, three standard errors of the simulation
// allowed; headlines that agree with intervals, always.
func TestCoverage(t *testing.T) {
	const plays = 200
	cells := statstest.Cells([]int{5, 8, 10, 20, 40}, []int{1, 2, 4, 8})
	for i := 0; i < len(cells); i += 41 { // a number that shares no factor with the grid's
		c := cells[i]
		r := statstest.Run(c, plays)
		for _, what := range r.Broken() {
			t.Errorf("%s: %s", c, what)
		}
	}
}

// Equal arms with repeats, and rates near the ends, are where a percentile bootstrap fails: it
// shows a difference in 8 to 12 % of comparisons, and its intervals hold the truth in 85 to 89 %.
func TestHardCells(t *testing.T) {
	for _, c := range []statstest.Cell{
		{Tasks: 5, Repeats: 8, A: 0.5, B: 0.5, Arms: 2},
		{Tasks: 8, Repeats: 4, A: 0.5, B: 0.5, Spread: statstest.Varied, Arms: 2},
		{Tasks: 10, Repeats: 4, A: 0.05, B: 0.95, Spread: statstest.Extreme, Arms: 2},
		{Tasks: 10, Repeats: 1, A: 0.05, B: 0.1, Shape: statstest.Fraction, Spread: statstest.Varied, Shared: true,
			Arms: 2},
		{Tasks: 20, Repeats: 8, A: 0.05, B: 0.1, Spread: statstest.Extreme, Shared: true, Arms: 2},
		{Tasks: 20, Repeats: 1, A: 0.5, B: 0.5, Shape: statstest.Lopsided, Spread: statstest.Extreme, Arms: 2},
		{Tasks: 20, Repeats: 2, A: 0.2, B: 0.5, Spread: statstest.Varied, Shared: true, Arms: 6},
		{Tasks: 40, Repeats: 1, A: 0.5, B: 0.5, Arms: 6},
		{Tasks: 40, Repeats: 8, A: 0.5, B: 0.95, Spread: statstest.Extreme, Arms: 2},
		{Tasks: 200, Repeats: 1, A: 0.05, B: 0.05, Arms: 2},
	} {
		r := statstest.Run(c, 600)
		for _, what := range r.Broken() {
			t.Errorf("%s: %s", c, what)
		}
	}
}
