// Package rng generates the random numbers with which published tasks were made: numpy's
// RandomState for seeds and tasks, Python's random for shuffling examples. The same seed always
// gives the same numbers.
package rng

import "math/bits"

// A RandomState is numpy.random.RandomState(seed). It is not safe for concurrent use.
type RandomState struct{ mt twister }

// NewRandomState returns a seeded generator. Like numpy, it accepts only seeds of 32 bits.
func NewRandomState(seed uint32) *RandomState {
	r := new(RandomState)
	r.mt.seed(seed)
	return r
}

// Randint is randint(lo, hi): a number in [lo, hi). It panics if the range is empty or has more
// than 2^32 numbers.
func (r *RandomState) Randint(lo, hi int) int {
	if hi <= lo || uint64(hi-1-lo) > 1<<32-1 {
		panic("rng: Randint: low >= high, or a range above 32 bits")
	}
	most := uint32(hi - 1 - lo)
	if most == 0 {
		return lo // nothing is drawn
	}
	mask := uint32(1)<<bits.Len32(most) - 1
	for {
		if v := r.mt.next() & mask; v <= most {
			return lo + int(v)
		}
	}
}

// Randints is randint(lo, hi, size=n).
func (r *RandomState) Randints(lo, hi, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = r.Randint(lo, hi)
	}
	return out
}

// A Random is Python's random.Random(seed) for seeds that are not negative. It is not safe for
// concurrent use.
type Random struct{ mt twister }

// NewRandom returns a seeded generator.
func NewRandom(seed uint64) *Random {
	key := []uint32{uint32(seed)}
	if seed>>32 != 0 {
		key = append(key, uint32(seed>>32))
	}
	r := new(Random)
	r.mt.seedArray(key)
	return r
}

// Below is randrange(n). It panics unless n is between 1 and 2^32-1.
func (r *Random) Below(n int) int {
	if n <= 0 || uint64(n) > 1<<32-1 {
		panic("rng: Below: out of range")
	}
	k := bits.Len32(uint32(n))
	for {
		if v := r.mt.next() >> (32 - k); v < uint32(n) {
			return int(v)
		}
	}
}

// Shuffle is Python's shuffle for a list of n items; swap exchanges two of them.
func (r *Random) Shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, r.Below(i+1))
	}
}
