package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/recordings"
)

// A screenshot that differs is repeated for this long and this often, to find out whether another
// moment explains it: text cursors blink once a second.
const (
	later = 1300 * time.Millisecond
	shots = 25
)

// picture compares the screenshot, pixel by pixel.
func (p *player) picture(ctx context.Context, where string, o *browsergym.Observation,
	want *recordings.Observation) error {
	got, err := decode(o.Screenshot)
	if err != nil {
		return err
	}
	p.c.add(where, difference{"screenshot size", fmt.Sprint(got.width, got.height),
		fmt.Sprint(want.Screenshot.Width, want.Screenshot.Height)}, unexcused)
	p.know(got)
	why := ""
	if p.pictures != "" {
		os.WriteFile(filepath.Join(p.pictures,
			fmt.Sprintf("%s.%02d.png", strings.ReplaceAll(where, "/", "."), want.Index)), o.Screenshot, 0o644)
	}
	if got.sum() != want.Screenshot.Sum {
		png, err := p.recorded(want)
		if err != nil {
			return err
		}
		if len(png) > 0 {
			w, err := decode(png)
			if err != nil {
				return err
			}
			p.know(w)
		}
		why = p.why(ctx, o, got, want)
	}
	p.c.add(where, difference{"screenshot", got.sum(), want.Screenshot.Sum}, func(difference) string { return why })
	return nil
}

// recorded returns the recorded picture if its pixels were kept. Most observations have only a
// digest; then the pixels may come from an observation of the same task that looked the same with
// another seed.
func (p *player) recorded(want *recordings.Observation) (png []byte, err error) {
	if len(want.Screenshot.PNG) > 0 {
		return want.Screenshot.PNG, nil
	}
	task := func(name string) string { return strings.TrimRight(name, "0123456789") }
	header := func(*recordings.Header) error { return nil }
	for name, file := range p.files {
		if name == p.name || task(name) != task(p.name) {
			continue
		}
		err := recordings.Read(file, header, func(o *recordings.Observation) error {
			if o.Screenshot.Sum == want.Screenshot.Sum && len(o.Screenshot.PNG) > 0 {
				png = o.Screenshot.PNG
			}
			return nil
		})
		if err != nil || png != nil {
			return png, err
		}
	}
	return nil, nil
}

func unexcused(difference) string { return "" }

// why returns why a picture differs: the page shows something that always changes; or the picture
// equals the recorded one at another moment, or after applying grains, or both.
func (p *player) why(ctx context.Context, o *browsergym.Observation, got *bitmap, want *recordings.Observation) string {
	const grain = "2: a pixel rounded otherwise"
	shows, always := p.moves()
	if shows != "" && !always {
		return shows
	}
	if !always && p.grained(got, want, nil) {
		return grain
	}
	moments := map[string]*bitmap{got.sum(): got}
	for n, began := 0, time.Now(); n < shots || time.Since(began) < later; n++ {
		raw, err := o.Page.Screenshot(ctx, want.Scale)
		if err != nil {
			return ""
		}
		now, err := decode(raw)
		if err != nil {
			return ""
		}
		sum := now.sum()
		if sum == want.Screenshot.Sum {
			return "README: screenshot, as it is at another moment"
		}
		if always && sum != got.sum() { // the page does change
			return shows
		}
		if moments[sum] == nil && len(moments) < 8 {
			moments[sum] = now
			p.know(now)
		}
		time.Sleep(40 * time.Millisecond)
	}
	for _, fresh := range []*obs.Properties{nil, o.Properties} { // the slower one last
		for sum, b := range moments {
			if p.grained(b, want, fresh) {
				if sum != got.sum() {
					return grain + ", at another moment"
				}
				return grain
			}
		}
	}
	return ""
}

// grained reports whether a picture equals the recorded one except for grains: those known from
// pictures of this page and, if elements is not nil, one at a corner of an element.
func (p *player) grained(b *bitmap, want *recordings.Observation, elements *obs.Properties) bool {
	var fresh []grain
	if elements != nil {
		fresh = b.corners(elements)
	}
	return b.ground(want.Screenshot.Sum, p.grains.of(b), fresh)
}

// know stores a picture and what it shows about grains.
func (p *player) know(b *bitmap) {
	sum := b.sum()
	if p.known[sum] != nil || len(p.known) == 40 { // limited because they are large
		return
	}
	for _, other := range p.known {
		p.grains.learn(b, other)
	}
	p.known[sum] = b
}

// moves returns the row of the README saying that something on the page always changes, and whether
// any two of its pictures show that.
func (p *player) moves() (row string, always bool) {
	switch name := p.h.TaskName(); {
	case strings.HasPrefix(name, "errors"):
		return "README: errors", true
	case strings.HasPrefix(name, "graphics"):
		return "README: graphics", false
	case name == "terminal", name == "stock-market", name == "click-pie":
		return "README: " + name, false
	}
	return "", false
}

// A bitmap holds a picture's red, green and blue bytes, row by row.
type bitmap struct {
	width, height int
	rgb           []byte
}

func decode(raw []byte) (*bitmap, error) {
	img, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("the screenshot: %w", err)
	}
	b := &bitmap{width: img.Bounds().Dx(), height: img.Bounds().Dy()}
	b.rgb = make([]byte, 0, b.width*b.height*3)
	for y := range b.height {
		for x := range b.width {
			red, green, blue, _ := img.At(x, y).RGBA()
			b.rgb = append(b.rgb, byte(red>>8), byte(green>>8), byte(blue>>8))
		}
	}
	return b, nil
}

func (b *bitmap) sum() string {
	digest := sha256.Sum256(b.rgb)
	return hex.EncodeToString(digest[:])
}
