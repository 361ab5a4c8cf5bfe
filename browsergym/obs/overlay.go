package obs

import (
	"image"
	"image/color"
	"image/draw"
	"math"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// OverlayOptions say how large things are, in pixels; zero fields are 12, 2 and 2.
type OverlayOptions struct {
	FontSize  float64
	LineWidth int // of the boxes
	TagMargin int // between a tag's text and its outline
}

// Overlay is the set of marks on a screenshot: around each marked element a dashed box, and at its
// upper left corner its bid, white on black. It draws in the order of the document, so that a tag
// may lie upon an earlier box. Elements below 20 square pixels are left out. The screenshot itself
// is not changed.
//
// Places, sizes and colours are those of BrowserGym's overlay_som. The shapes of the letters are
// not: its font is not ours to give away.
func Overlay(screenshot image.Image, p *Properties, o OverlayOptions) *image.RGBA {
	if o.FontSize <= 0 {
		o.FontSize = 12
	}
	if o.LineWidth <= 0 {
		o.LineWidth = 2
	}
	if o.TagMargin <= 0 {
		o.TagMargin = 2
	}
	b := screenshot.Bounds()
	img := image.NewRGBA(image.Rect(0, 0, b.Dx(), b.Dy()))
	draw.Draw(img, img.Bounds(), screenshot, b.Min, draw.Src)
	t := tagger{img: img, margin: o.TagMargin, face: newFace(o.FontSize)}
	defer t.face.Close()
	for _, bid := range p.Bids() {
		x, _ := p.Get(bid)
		if !x.Marked || x.Box == nil || !drawable(*x.Box) {
			continue
		}
		dashedBox(img, *x.Box, o.LineWidth)
		t.draw(bid, x.Box[0], x.Box[1])
	}
	return img
}

// drawable leaves out what is too small, and what no screenshot can hold: such boxes are a page's
// lie, and would overflow.
func drawable(box [4]float64) bool {
	for _, v := range box {
		if !(math.Abs(v) < 1<<30) {
			return false
		}
	}
	return box[2]*box[3] >= 20
}

var black, white = image.NewUniform(color.Black), image.NewUniform(color.White)

func pixel(f float64) int { return int(math.RoundToEven(f)) }

// dashedBox draws the four sides clockwise from the upper left corner; each begins with a dash. An
// even width cannot lie evenly on a line of pixels: the pixel too many is inside on the way right
// and left, outside on the way down and up.
func dashedBox(img *image.RGBA, box [4]float64, width int) {
	before, after := (width-1)/2, width/2
	left, top, right, bottom := box[0], box[1], box[0]+box[2], box[1]+box[3]
	size := img.Bounds().Max
	across := func(y float64, before, after int) func(from, to int) {
		return func(from, to int) { fill(img, from, pixel(y)-before, to, pixel(y)+after) }
	}
	down := func(x float64, before, after int) func(from, to int) {
		return func(from, to int) { fill(img, pixel(x)-before, from, pixel(x)+after, to) }
	}
	dashes(left, right, size.X, across(top, before, after))
	dashes(top, bottom, size.Y, down(right, before, after))
	dashes(right, left, size.X, across(bottom, after, before))
	dashes(bottom, top, size.Y, down(left, after, before))
}

// dashes of a side that runs from a to b: 4 pixels of line, 8 of gap, the last cut off at the end.
// Those outside 0 to size are skipped at one go, as an element may be a billion pixels long.
func dashes(a, b float64, size int, dash func(from, to int)) {
	const on, period = 4, 12
	sign, length := 1.0, b-a
	if length < 0 {
		sign, length = -1, -length
	}
	begin, end := -a, float64(size)-a // of what is seen, as distances from a
	if sign < 0 {
		begin, end = -end, -begin
	}
	first := max(0, math.Floor(begin/period)-1) * period
	for d := first; d < min(length, end+1); d += period {
		from, to := pixel(a+sign*d), pixel(a+sign*min(d+on, length))
		dash(min(from, to), max(from, to))
	}
}

// fill paints a rectangle whose last row and column belong to it.
func fill(img *image.RGBA, x0, y0, x1, y1 int) {
	draw.Draw(img, image.Rect(x0, y0, x1+1, y1+1), black, image.Point{}, draw.Src)
}

// A tagger draws bids.
type tagger struct {
	img    *image.RGBA
	margin int
	face   font.Face
}

func (t *tagger) draw(text string, x, y float64) {
	const most = 64 // a longer bid is no bid
	if len(text) > most {
		text = text[:most]
	}
	ink, advance := font.BoundString(t.face, text)
	top, bottom := ink.Min.Y.Round(), ink.Max.Y.Round()
	pad := t.margin + 1 // the outline is a pixel
	w, h := max(advance, ink.Max.X).Ceil()+2*pad, bottom-top+2*pad
	at := image.Pt(pixel(x), pixel(y-float64(h)/2+4))
	tag := image.Rectangle{Min: at, Max: at.Add(image.Pt(w, h))}
	draw.Draw(t.img, tag, white, image.Point{}, draw.Src)
	draw.Draw(t.img, tag.Inset(1), black, image.Point{}, draw.Src)
	d := font.Drawer{Dst: t.img, Src: white, Face: t.face, Dot: fixed.P(at.X+pad, at.Y+pad-top)}
	d.DrawString(text)
}

var goRegular = sync.OnceValue(func() *opentype.Font {
	f, err := opentype.Parse(goregular.TTF)
	if err != nil {
		panic(err) // it is part of the binary
	}
	return f
})

func newFace(size float64) font.Face {
	f, err := opentype.NewFace(goRegular(), &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		panic(err) // it never is one
	}
	return f
}
