package obs_test

import (
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/recordings/recordingstest"
)

// The recorded pictures differ from ours in the letters alone: everything outside tags is equal but
// for rounded ends of dashes, and tags lie where they should, as large as they should be, within
// two pixels. EVALRUN_OVERLAY_OUT keeps our pictures.
func TestOverlayGolden(t *testing.T) {
	dir := filepath.Join(recordingstest.Dir(t), "overlay")
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	if len(files) == 0 {
		t.Fatalf("no recordings in %s", dir)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".json")
		t.Run(filepath.Base(name), func(t *testing.T) {
			var c struct {
				Arguments struct {
					FontSize  float64 `json:"fontsize"`
					LineWidth int     `json:"linewidth"`
					TagMargin int     `json:"tag_margin"`
				}
				Properties *obs.Properties `json:"extra_element_properties"`
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, &c); err != nil {
				t.Fatal(err)
			}
			got := obs.Overlay(readPNG(t, name+".in.png"), c.Properties, obs.OverlayOptions(c.Arguments))
			if out := os.Getenv("EVALRUN_OVERLAY_OUT"); out != "" {
				writePNG(t, filepath.Join(out, filepath.Base(name)+".png"), got)
			}
			want := readPNG(t, name+".out.png")
			if got.Bounds() != want.Bounds() {
				t.Fatalf("bounds %v, not %v", got.Bounds(), want.Bounds())
			}
			tags := tagsOf(c.Properties, c.Arguments.FontSize, c.Arguments.TagMargin)
			differ, inTag := 0, 0
			for y := range got.Bounds().Dy() {
				for x := range got.Bounds().Dx() {
					if grey(got.At(x, y)) == grey(want.At(x, y)) {
						continue
					}
					if within(tags, x, y) {
						inTag++
						continue
					}
					// The reference's dashes are slanted by a pixel where a side's end is no whole
					// number.
					if !near(want, x, y, grey(got.At(x, y))) {
						t.Errorf("%d,%d: %v, not %v", x, y, got.At(x, y), want.At(x, y))
					}
					differ++
				}
			}
			t.Logf("%d pixels differ outside tags, %d inside (letters)", differ, inTag)
			if all := got.Bounds().Dx() * got.Bounds().Dy(); differ*500 > all {
				t.Errorf("%d of %d pixels outside tags differ", differ, all)
			}
			for bid, r := range tags {
				if g, w := outline(got, r), outline(want, r); math.Abs(g-w) > 0.2 {
					t.Errorf("tag %s at %v: %.2f of its outline is white, %.2f in the recording", bid, r, g, w)
				}
			}
		})
	}
}

// tagsOf are the tags' places by the specification, with the recorded font's digits of 7 pixels at
// size 12 and 9 at 16; two pixels more to the right.
func tagsOf(p *obs.Properties, size float64, margin int) map[string]image.Rectangle {
	digit, high := 7, 9
	if size == 16 {
		digit, high = 9, 11
	}
	if margin == 0 {
		margin = 2
	}
	tags := map[string]image.Rectangle{}
	for _, bid := range p.Bids() {
		if x, _ := p.Get(bid); x.Marked && x.Box != nil && x.Box[2]*x.Box[3] >= 20 {
			w, h := len(bid)*digit+2*margin+2, high+2*margin+2
			at := image.Pt(int(math.RoundToEven(x.Box[0])), int(math.RoundToEven(x.Box[1]-float64(h)/2+4)))
			tags[bid] = image.Rectangle{at, at.Add(image.Pt(w+2, h))}
		}
	}
	return tags
}

// outline is how white the upper and lower edge of a tag are, a pixel higher or lower being as
// good.
func outline(img image.Image, r image.Rectangle) float64 {
	edge := func(y int) float64 {
		n, bright := 0, 0
		for x := r.Min.X; x < r.Max.X-2; x++ {
			if (image.Point{X: x, Y: y}).In(img.Bounds()) {
				if n++; grey(img.At(x, y)) == 255 {
					bright++
				}
			}
		}
		return float64(bright) / float64(max(n, 1))
	}
	best := func(y int) float64 { return max(edge(y-1), edge(y), edge(y+1)) }
	return (best(r.Min.Y) + best(r.Max.Y-1)) / 2
}

func within(tags map[string]image.Rectangle, x, y int) bool {
	for _, r := range tags {
		if (image.Point{X: x, Y: y}).In(r) {
			return true
		}
	}
	return false
}

func near(img image.Image, x, y, want int) bool {
	for dy := -1; dy <= 1; dy++ {
		for dx := -1; dx <= 1; dx++ {
			if (image.Point{X: x + dx, Y: y + dy}).In(img.Bounds()) && grey(img.At(x+dx, y+dy)) == want {
				return true
			}
		}
	}
	return false
}

func grey(c color.Color) int { return int(color.GrayModel.Convert(c).(color.Gray).Y) }

// What a page claims of its elements may be nonsense: nothing hangs, nothing panics, the screenshot
// stays as it is.
func TestOverlayHostile(t *testing.T) {
	var p obs.Properties
	for i, box := range [][4]float64{
		{math.NaN(), 0, 10, 10}, {0, 0, math.Inf(1), 10}, {-1e300, -1e300, 2e300, 2e300}, {-1e9, -1e9, 1.05e9, 1.05e9},
		{0, 0, -100, -100}, {90, 90, 1e9, 1e9}, {5, 5, 1e9, 20}, {3, 3, 4, 4},
	} {
		p.Set(fmt.Sprint(i), obs.Property{Marked: true, Box: &box})
	}
	p.Set(strings.Repeat("\x1b[31mé\u202e", 1e5), obs.Property{Marked: true, Box: &[4]float64{50, 50, 20, 20}})
	in := image.NewGray(image.Rect(10, 20, 110, 120))
	for i := range in.Pix {
		in.Pix[i] = 200
	}
	out := obs.Overlay(in, &p, obs.OverlayOptions{})
	if out.Bounds() != image.Rect(0, 0, 100, 100) {
		t.Errorf("bounds %v", out.Bounds())
	}
	for _, v := range in.Pix {
		if v != 200 {
			t.Fatal("the screenshot was changed")
		}
	}
	if grey(out.At(30, 5)) != 0 || grey(out.At(34, 5)) != 200 { // a side of a billion pixels begins at its own corner
		t.Errorf("dashes of the long side: %v %v", out.At(30, 5), out.At(34, 5))
	}
	if obs.Overlay(in, nil, obs.OverlayOptions{}).RGBAAt(0, 0) != (color.RGBA{200, 200, 200, 255}) {
		t.Error("without properties nothing is drawn")
	}
}

func readPNG(t *testing.T, name string) image.Image {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return img
}

func writePNG(t *testing.T, name string, img image.Image) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := png.Encode(f, img); err != nil {
		t.Fatal(err)
	}
}
