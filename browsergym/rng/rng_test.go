package rng_test

import (
	"slices"
	"testing"

	"github.com/evalrun/evalrun/browsergym/rng"
)

func TestRandint(t *testing.T) {
	for _, tt := range []struct {
		seed          uint32
		first, second int
	}{
		{0, 985772, 305711}, {1, 128037, 491755}, {2, 875688, 100879}, {3, 71530, 722584}, {4, 991406, 485815},
		{5, 297827, 18638},
		{33, 941076, 985479}, {42, 121958, 671155}, {123, 773630, 277869}, {4294967295, 944547, 147746},
	} {
		r := rng.NewRandomState(tt.seed)
		if got := r.Randints(0, 1_000_000, 2); got[0] != tt.first || got[1] != tt.second {
			t.Errorf("seed %d: %v, not %d, %d", tt.seed, got, tt.first, tt.second)
		}
	}
}

func TestChoice(t *testing.T) {
	r := rng.NewRandomState(0)
	list := []int{10, 20, 30, 40, 50}
	var got []int
	for range 6 {
		got = append(got, list[r.Randint(0, len(list))])
		if r.Randint(0, 1) != 0 { // draws nothing
			t.Fatal("a choice of one")
		}
	}
	if want := []int{50, 10, 40, 40, 40, 20}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

// Values of numpy and Python themselves.
var (
	edge    = []int{327741610, 976413887}
	edgeSum = 49647635
	long    = []int{3, 5, 2, 9, 6, 7, 1, 10, 0, 4, 11, 8}
)

// The edges of the range, and far beyond the first 624 draws.
func TestRandintEdges(t *testing.T) {
	r := rng.NewRandomState(7)
	if got := r.Randints(-5, 1<<32-5, 2); !slices.Equal(got, edge) {
		t.Errorf("the whole range: %v, not %v", got, edge)
	}
	sum := 0
	for _, v := range r.Randints(-3, 1000, 100_000) {
		sum += v
	}
	if sum != edgeSum {
		t.Errorf("sum %d, not %d", sum, edgeSum)
	}
}

func TestShuffle(t *testing.T) {
	for _, want := range [][]int{
		{1, 0}, {1, 2, 0}, {2, 3, 4, 0, 1}, {2, 3, 5, 0, 4, 1}, {3, 6, 5, 2, 0, 4, 1}, {5, 6, 7, 4, 3, 0, 8, 1, 2},
		{6, 8, 10, 7, 5, 3, 0, 4, 1, 9, 2}, {7, 11, 0, 8, 5, 6, 3, 10, 4, 1, 9, 2},
	} {
		if got := shuffled(1, len(want)); !slices.Equal(got, want) {
			t.Errorf("%v, not %v", got, want)
		}
	}
	if got := shuffled(1<<40+5, 12); !slices.Equal(got, long) {
		t.Errorf("a long seed: %v, not %v", got, long)
	}
}

func shuffled(seed uint64, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	rng.NewRandom(seed).Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
