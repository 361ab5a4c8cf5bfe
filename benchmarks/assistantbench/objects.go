package assistantbench

import (
	"math"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// alignObjects pairs the objects of an answer with the expected ones.
func alignObjects(got, want pyrepr.List) float64 {
	if _, ok := got[0].(pyrepr.Dict); !ok {
		return 0
	}
	return align(len(got), len(want), func(i, j int) float64 {
		a, ok := got[i].(pyrepr.Dict)
		b, ok2 := want[j].(pyrepr.Dict)
		if !ok || !ok2 || len(a) == 0 || len(b) == 0 {
			return 0
		}
		return f1(covered(b, a), covered(a, b))
	})
}

// covered returns how well, on average, the fields of one object are matched by those of another.
func covered(by, of pyrepr.Dict) float64 {
	sum, seen := 0.0, map[string]bool{}
	for _, p := range of {
		if seen[p.Key] {
			continue
		}
		seen[p.Key] = true
		x, ok := get(by, p.Key)
		y, _ := get(of, p.Key)
		if ok {
			sum += field(numbers(x, false), numbers(y, false))
		}
	}
	return sum / float64(len(seen))
}

// get returns the value of a field. If a name occurs more than once, the last one counts.
func get(d pyrepr.Dict, key string) (pyrepr.Value, bool) {
	for i := len(d) - 1; i >= 0; i-- {
		if d[i].Key == key {
			return d[i].Value, true
		}
	}
	return nil, false
}

func field(x, y pyrepr.Value) float64 {
	if x.Type() != y.Type() {
		return 0
	}
	switch x := x.(type) {
	case pyrepr.Float:
		return near(float64(x), float64(y.(pyrepr.Float)))
	case pyrepr.Str, pyrepr.Bool, pyrepr.List:
		return words(x, y)
	}
	return 0
}

// align finds the one-to-one pairing of n answers with m expected ones that has the largest total
// score. It returns that total divided by the larger of n and m.
func align(n, m int, score func(i, j int) float64) float64 {
	if n == 0 || m == 0 {
		return 0
	}
	at := func(row, col int) float64 { return score(row, col) }
	rows, cols := n, m
	if n > m {
		rows, cols = m, n
		at = func(row, col int) float64 { return score(col, row) }
	}
	scores := make([][]float64, rows)
	for i := range scores {
		scores[i] = make([]float64, cols)
		for j := range scores[i] {
			scores[i][j] = at(i, j)
		}
	}
	sum := 0.0
	for j, i := range assign(scores) {
		if i >= 0 {
			sum += scores[i][j]
		}
	}
	return sum / float64(cols)
}

// assign returns for each column its row, or -1, such that every row has a column and the total
// score is maximal. It uses the Hungarian method with potentials and requires that there are no
// more rows than columns.
func assign(scores [][]float64) []int {
	rows, cols := len(scores), len(scores[0])
	u, v := make([]float64, rows+1), make([]float64, cols+1)
	row := make([]int, cols+1) // row of each column, counted from 1; 0 means none
	for i := 1; i <= rows; i++ {
		row[0] = i
		least, from, done := make([]float64, cols+1), make([]int, cols+1), make([]bool, cols+1)
		for j := range least {
			least[j] = math.Inf(1)
		}
		j := 0
		for row[j] != 0 {
			done[j] = true
			best, next := math.Inf(1), 0
			for k := 1; k <= cols; k++ {
				if done[k] {
					continue
				}
				if c := -scores[row[j]-1][k-1] - u[row[j]] - v[k]; c < least[k] {
					least[k], from[k] = c, j
				}
				if least[k] < best {
					best, next = least[k], k
				}
			}
			for k := range done {
				if done[k] {
					u[row[k]] += best
					v[k] -= best
				} else {
					least[k] -= best
				}
			}
			j = next
		}
		for j != 0 {
			row[j] = row[from[j]]
			j = from[j]
		}
	}
	out := make([]int, cols)
	for j := range out {
		out[j] = row[j+1] - 1
	}
	return out
}
