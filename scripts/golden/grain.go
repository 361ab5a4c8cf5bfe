package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"iter"
	"maps"
	"slices"

	"github.com/evalrun/evalrun/browsergym/obs"
)

// A grain is a pixel that a rasterizer rounds differently from one time to the next, as in rounded
// corners: it differs by at most fineness levels of 255. This is invisible, but it changes a
// picture's digest.
type grain struct {
	at  int // offset of its first byte
	rgb [3]byte
}

const (
	fineness = 2    // maximum difference of a grain
	tries    = 1500 // number of grain combinations tried, smallest first
)

// graining is what a page's pictures have shown about its grains: the values of each pixel, and the
// pixels that change together because they are drawn together.
type graining struct {
	values map[int][][3]byte // values of a pixel, by offset
	groups [][]int
}

// learn adds the pixels by which two pictures differ like grains: the surrounding pixels are equal.
func (g *graining) learn(a, b *bitmap) {
	if a.width != b.width || a.height != b.height {
		return
	}
	differ := map[int]bool{}
	row := 3 * a.width
	for y := 1; y < a.height-1; y++ {
		from := y * row
		if bytes.Equal(a.rgb[from:from+row], b.rgb[from:from+row]) {
			continue
		}
		for i := from + 3; i < from+row-3; i += 3 {
			if x := (grain{i, [3]byte(b.rgb[i:])}); a.has(x) && alike(a, b, i) {
				differ[i] = true
				for _, v := range [][3]byte{x.rgb, [3]byte(a.rgb[i:])} {
					if !slices.Contains(g.values[i], v) {
						g.values[i] = append(g.values[i], v)
					}
				}
			}
		}
	}
	var groups [][]int
	for _, group := range g.groups {
		var in, out []int
		for _, i := range group {
			if differ[i] {
				in = append(in, i)
				delete(differ, i)
			} else {
				out = append(out, i)
			}
		}
		for _, part := range [][]int{in, out} {
			if len(part) > 0 {
				groups = append(groups, part)
			}
		}
	}
	if len(differ) > 0 {
		groups = append(groups, slices.Sorted(maps.Keys(differ)))
	}
	g.groups = groups
}

// of returns the known grains of b by group: the alternative values of its pixels.
func (g *graining) of(b *bitmap) (groups [][]grain) {
	for _, group := range g.groups {
		var all []grain
		for _, i := range group {
			for _, v := range g.values[i] {
				if x := (grain{i, v}); b.has(x) {
					all = append(all, x)
					break
				}
			}
		}
		if len(all) > 0 {
			groups = append(groups, all)
		}
	}
	return groups
}

// alike reports whether two pictures are equal around a pixel.
func alike(a, b *bitmap, i int) bool {
	row := 3 * a.width
	for _, from := range []int{i - row - 3, i - row, i - row + 3, i - 3, i + 3, i + row - 3, i + row, i + row + 3} {
		if [3]byte(a.rgb[from:]) != [3]byte(b.rgb[from:]) {
			return false
		}
	}
	return true
}

// has reports whether g may be a grain of b: its value differs, but only slightly.
func (b *bitmap) has(g grain) bool {
	differs := false
	for k, v := range g.rgb {
		d := int(v) - int(b.rgb[g.at+k])
		if d < -fineness || d > fineness {
			return false
		}
		differs = differs || d != 0
	}
	return differs
}

// corners returns possible grains at the corners of elements, rounded ones or those of a focus
// ring: grey pixels that differ from their surroundings.
func (b *bitmap) corners(elements *obs.Properties) (all []grain) {
	const reach = 3
	row := 3 * b.width
	seen := map[int]bool{}
	for _, bid := range elements.Bids() {
		e, _ := elements.Get(bid)
		if e.Box == nil {
			continue
		}
		box := *e.Box
		for k := range 4 {
			left, top := int(box[0]+float64(k%2)*box[2]), int(box[1]+float64(k/2)*box[3])
			for y := max(1, top-reach); y < min(b.height-1, top+reach); y++ {
				for x := max(1, left-reach); x < min(b.width-1, left+reach); x++ {
					i := y*row + 3*x
					if seen[i] || b.rgb[i] != b.rgb[i+1] || b.rgb[i] != b.rgb[i+2] {
						continue
					}
					seen[i] = true
					other := 0
					for _, at := range []int{i - row, i + row, i - 3, i + 3} {
						if [3]byte(b.rgb[at:]) != [3]byte(b.rgb[i:]) {
							other++
						}
					}
					for d := -fineness; other >= 3 && d <= fineness; d++ {
						if v := int(b.rgb[i]) + d; d != 0 && v >= 0 && v <= 255 {
							all = append(all, grain{i, [3]byte{byte(v), byte(v), byte(v)}})
						}
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b grain) int { return a.at - b.at })
	return all
}

// ground reports whether b has the digest sum with some of the known grains and at most one new
// one.
func (b *bitmap) ground(sum string, known [][]grain, fresh []grain) bool {
	if len(fresh) == 0 {
		for some := range choices(known, tries) {
			if b.with(some).sum() == sum {
				return true
			}
		}
		return false
	}
	for some := range choices(known, 6) {
		if b.with(some).one(sum, fresh) {
			return true
		}
	}
	return false
}

// with returns b with some grains applied.
func (b *bitmap) with(grains []grain) *bitmap {
	out := &bitmap{b.width, b.height, slices.Clone(b.rgb)}
	for _, g := range grains {
		copy(out.rgb[g.at:], g.rgb[:])
	}
	return out
}

// one reports whether a single grain gives b the digest sum. It hashes the bytes before the grains
// only once.
func (b *bitmap) one(sum string, grains []grain) bool {
	before, done := sha256.New(), 0
	for _, g := range grains {
		before.Write(b.rgb[done:g.at])
		done = g.at
		h, err := before.(hash.Cloner).Clone()
		if err != nil {
			return false
		}
		h.Write(g.rgb[:])
		h.Write(b.rgb[g.at+3:])
		if hex.EncodeToString(h.Sum(nil)) == sum {
			return true
		}
	}
	return false
}

// choices yields combinations of groups, the smallest first, starting with the empty one; at most n
// of them.
func choices(groups [][]grain, n int) iter.Seq[[]grain] {
	return func(yield func([]grain) bool) {
		var choose func(from, more int, some []grain) bool
		choose = func(from, more int, some []grain) bool {
			if more == 0 {
				n--
				return n >= 0 && yield(some)
			}
			for i := from; i+more <= len(groups); i++ {
				if !choose(i+1, more-1, slices.Concat(some, groups[i])) {
					return false
				}
			}
			return true
		}
		for size := range len(groups) + 1 {
			if !choose(0, size, nil) {
				return
			}
		}
	}
}
