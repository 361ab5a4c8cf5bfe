// Package suggest finds the names that a user who mistyped one may have meant. It imports only the
// standard library.
package suggest

import (
	"slices"
	"strings"
)

// maxWord caps the length of a mistyped name, because the time is quadratic in it and files may be
// hostile.
const maxWord = 200

// Names returns the names that the writer of word may have meant: at most three, nearest first.
func Names(word string, names []string) []string {
	type hit struct {
		name string
		d    int
	}
	if len(word) > maxWord {
		return nil
	}
	var hits []hit
	w := strings.ToLower(word)
	for _, n := range names {
		l := strings.ToLower(n)
		d := distance(w, l)
		most := max(1, len(l)/3)
		if d > most && len(w) >= 3 && (strings.HasPrefix(l, w) || strings.HasPrefix(w, l) && len(l) >= 3) {
			d = most
		}
		if d <= most {
			hits = append(hits, hit{n, d})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return a.d - b.d })
	var out []string
	for _, h := range hits[:min(3, len(hits))] {
		out = append(out, h.name)
	}
	return out
}

// distance returns the number of edits between a and b: insertions, deletions, substitutions, and
// swaps of neighbors.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	var before []int
	prev := make([]int, len(y)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(x); i++ {
		cur := make([]int, len(y)+1)
		cur[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev = prev, cur
	}
	return prev[len(y)]
}
