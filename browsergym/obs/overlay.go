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

// OverlayOptions are sizes in pixels; zero fields mean 12, 2 and 2.
type OverlayOptions struct {
	FontSize  float64
	LineWidth int // of the boxes
	TagMargin int // between a label's text and its outline
}

// Overlay returns the screenshot with the set of marks: a dashed box around each marked element,
// and its bid in white on black at the upper left corner. It draws in document order, so a label
// may cover an earlier box. It leaves out elements below 20 square pixels. The screenshot itself is
// not modified.
//
// Positions, sizes and colors are those of BrowserGym's overlay_som. The font is different, because
// the original's license does not allow us to distribute it.
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

// drawable rejects boxes that are too small, and boxes larger than any screenshot, which only a
// dishonest page reports and which would overflow.
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

// dashedBox draws the four sides clockwise from the upper left corner; each starts with a dash. A
// line of even width cannot be centered on a line of pixels: the extra pixel is inside on the top
// and bottom sides and outside on the right and left sides.
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

// dashes calls dash for each dash of a side from a to b: 4 pixels of line, 8 of gap, the last one
// cut off at the end. It skips dashes outside 0 to size at once, because an element may be a
// billion pixels long.
func dashes(a, b float64, size int, dash func(from, to int)) {
	const on, period = 4, 12
	sign, length := 1.0, b-a
	if length < 0 {
		sign, length = -1, -length
	}
	begin, end := -a, float64(size)-a // distances of the visible part from a
	if sign < 0 {
		begin, end = -end, -begin
	}
	first := max(0, math.Floor(begin/period)-1) * period
	for d := first; d < min(length, end+1); d += period {
		from, to := pixel(a+sign*d), pixel(a+sign*min(d+on, length))
		dash(min(from, to), max(from, to))
	}
}

// fill paints a rectangle including its last row and column.
func fill(img *image.RGBA, x0, y0, x1, y1 int) {
	draw.Draw(img, image.Rect(x0, y0, x1+1, y1+1), black, image.Point{}, draw.Src)
}

// A tagger draws the labels.
type tagger struct {
	img    *image.RGBA
	margin int
	face   font.Face
}

func (t *tagger) draw(text string, x, y float64) {
	const most = 64 // no real bid is longer
	if len(text) > most {
		text = text[:most]
	}
	ink, advance := font.BoundString(t.face, text)
	top, bottom := ink.Min.Y.Round(), ink.Max.Y.Round()
	pad := t.margin + 1 // the outline is one pixel wide
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
		panic(err) // cannot happen: the font is part of the binary
	}
	return f
})

func newFace(size float64) font.Face {
	f, err := opentype.NewFace(goRegular(), &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		panic(err) // cannot happen: the options are constant
	}
	return f
}
