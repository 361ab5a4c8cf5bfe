package webarena

import (
	"image"
	"image/color"
	"math"
)

// similarity returns the mean structural similarity (Wang et al. 2004) of two greyscale pictures,
// both scaled to the larger width and height: 1 for identical pictures, around 0 for unrelated
// ones. Window, constants and covariance are scikit-image's defaults; scaling follows Pillow.
func similarity(a, b image.Image) float64 {
	w, h := max(a.Bounds().Dx(), b.Bounds().Dx()), max(a.Bounds().Dy(), b.Bounds().Dy())
	const side = 7
	if w < side || h < side {
		return -1 // undefined for pictures smaller than the window
	}
	const n = side * side
	const c1, c2 = (0.01 * 255) * (0.01 * 255), (0.03 * 255) * (0.03 * 255)
	x, y := grey(a, w, h), grey(b, w, h)
	// Column sums over the height of the window, moved down one row at a time.
	cols := make([][5]float64, w)
	total, rows := 0.0, 0
	for row := range h {
		for i := range w {
			add(&cols[i], x[row*w+i], y[row*w+i], 1)
			if row >= side {
				add(&cols[i], x[(row-side)*w+i], y[(row-side)*w+i], -1)
			}
		}
		if row < side-1 {
			continue
		}
		rows++
		var s [5]float64
		for i := range w {
			for k := range s {
				s[k] += cols[i][k]
				if i >= side {
					s[k] -= cols[i-side][k]
				}
			}
			if i < side-1 {
				continue
			}
			mx, my := s[0]/n, s[1]/n
			const sample = n / float64(n-1)
			vx, vy, vxy := sample*(s[2]/n-mx*mx), sample*(s[3]/n-my*my), sample*(s[4]/n-mx*my)
			total += (2*mx*my + c1) * (2*vxy + c2) / ((mx*mx + my*my + c1) * (vx + vy + c2))
		}
	}
	return total / float64(rows*(w-side+1))
}

// add adds a pair of pixels to the sums (sign 1), or removes it (sign -1).
func add(s *[5]float64, a, b uint8, sign float64) {
	x, y := float64(a), float64(b)
	s[0] += sign * x
	s[1] += sign * y
	s[2] += sign * x * x
	s[3] += sign * y * y
	s[4] += sign * x * y
}

// grey scales a picture and then converts it to greyscale, in this order.
func grey(img image.Image, w, h int) []uint8 {
	b := img.Bounds()
	sw, sh := b.Dx(), b.Dy()
	var planes [3][]uint8
	for k := range planes {
		planes[k] = make([]uint8, sw*sh)
	}
	for y := range sh {
		for x := range sw {
			c := color.NRGBAModel.Convert(img.At(b.Min.X+x, b.Min.Y+y)).(color.NRGBA)
			planes[0][y*sw+x], planes[1][y*sw+x], planes[2][y*sw+x] = c.R, c.G, c.B
		}
	}
	_, paletted := img.(*image.Paletted)
	for k := range planes {
		planes[k] = enlarge(planes[k], sw, sh, w, h, paletted)
	}
	out := make([]uint8, w*h)
	for i := range out {
		out[i] = uint8((uint32(planes[0][i])*19595 + uint32(planes[1][i])*38470 + uint32(planes[2][i])*7471 +
			1<<15) >> 16)
	}
	return out
}

// enlarge resamples rows, then columns, with Lanczos' kernel, or with the nearest pixel for
// paletted pictures.
func enlarge(p []uint8, sw, sh, w, h int, nearest bool) []uint8 {
	if sw != w {
		taps := weigh(sw, w, nearest)
		out := make([]uint8, w*sh)
		for y := range sh {
			for x, t := range taps {
				out[y*w+x] = t.of(p, y*sw, 1)
			}
		}
		p = out
	}
	if sh != h {
		taps := weigh(sh, h, nearest)
		out := make([]uint8, w*h)
		for y, t := range taps {
			for x := range w {
				out[y*w+x] = t.of(p, x, w)
			}
		}
		p = out
	}
	return p
}

// taps are the source pixels, starting at first, that contribute to one new pixel.
type taps struct {
	first   int
	weights []float64
}

func (t taps) of(p []uint8, start, step int) uint8 {
	v := 0.5
	for i, w := range t.weights {
		v += w * float64(p[start+(t.first+i)*step])
	}
	return uint8(math.Floor(min(max(v, 0), 255)))
}

func weigh(from, to int, nearest bool) []taps {
	const a = 3
	scale := float64(from) / float64(to)
	out := make([]taps, to)
	for i := range out {
		at := (float64(i) + 0.5) * scale
		if nearest {
			out[i] = taps{min(int(at), from-1), []float64{1}}
			continue
		}
		first, end := max(0, int(at-a+0.5)), min(from, int(at+a+0.5))
		t := taps{first: first}
		sum := 0.0
		for j := first; j < end; j++ {
			d := float64(j) + 0.5 - at
			v := 0.0
			if -a <= d && d < a {
				v = sinc(d) * sinc(d/a)
			}
			t.weights = append(t.weights, v)
			sum += v
		}
		for j := range t.weights {
			t.weights[j] /= sum
		}
		out[i] = t
	}
	return out
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	return math.Sin(math.Pi*x) / (math.Pi * x)
}
