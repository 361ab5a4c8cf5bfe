package web_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/benchmarks/web"
)

func TestSeeds(t *testing.T) {
	five := web.Seeds(125, 5)
	sum := 0
	for _, s := range five {
		for _, v := range s {
			sum += v
		}
	}
	if sum != 10559 {
		t.Errorf("the sum of all is %d", sum)
	}
	for task, want := range map[int][]int{1: {28, 14, 7, 20, 18}, 2: {22, 10, 10, 23, 23}, 3: {2, 21, 1, 23, 29},
		4: {1, 20, 32, 11, 21}, 12: {13, 22, 20, 15, 17}, 124: {20, 4, 17, 27, 21}, 125: {20, 5, 0, 4, 11}} {
		if !slices.Equal(five[task-1], want) {
			t.Errorf("task %d: %v, not %v", task, five[task-1], want)
		}
	}
	one := web.Seeds(812, 1)
	for first, want := range map[int][]int{0: {28, 14, 7, 20, 18, 22, 10, 10, 23, 23, 2, 21},
		100: {25, 12, 31, 31, 3, 29, 22, 14}, 350: {0}, 446: {21}, 449: {24}, 522: {10}} {
		for i, v := range want {
			if one[first+i][0] != v {
				t.Errorf("task %d: %d, not %d", first+i, one[first+i][0], v)
			}
		}
	}
	if two := web.Seeds(2, 2); !reflect.DeepEqual(two, [][]int{{28, 14}, {7, 20}}) {
		t.Errorf("two of two: %v", two)
	}
}

func TestChain(t *testing.T) {
	after := web.Chain([][]string{{"a"}, {"b"}, {"a", "b"}, {"b", "a"}, {"c"}, {}, {"a"}})
	if want := [][]int{nil, nil, {0, 1}, {2}, nil, nil, {3}}; !reflect.DeepEqual(after, want) {
		t.Errorf("%v, not %v", after, want)
	}
}
