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
)

// A picture that differs is taken again for so long, and so often, to see whether another moment explains it: carets blink once a second.
const (
	later = 1300 * time.Millisecond
	shots = 25
)

// picture compares the screenshot, pixel by pixel.
func (p *player) picture(ctx context.Context, where string, o *browsergym.Observation, want *recorded) error {
	got, err := decode(o.Screenshot)
	if err != nil {
		return err
	}
	p.c.add(where, difference{"screenshot size", fmt.Sprint(got.width, got.height), fmt.Sprint(want.Screenshot.Width, want.Screenshot.Height)}, unexcused)
	if len(want.Screenshot.PNG) > 0 {
		w, err := decode(want.Screenshot.PNG)
		if err != nil {
			return err
		}
		p.known[w.sum()] = w
	}
	if len(p.known) < 20 { // they are large
		p.known[got.sum()] = got
	}
	why := ""
	if p.pictures != "" {
		os.WriteFile(filepath.Join(p.pictures, fmt.Sprintf("%s.%02d.png", strings.ReplaceAll(where, "/", "."), want.Index)), o.Screenshot, 0o644)
	}
	if got.sum() != want.Screenshot.Sum {
		why = p.why(ctx, o.Page, got, want)
	}
	p.c.add(where, difference{"screenshot", got.sum(), want.Screenshot.Sum}, func(difference) string { return why })
	return nil
}

func unexcused(difference) string { return "" }

// A drawer gives pictures of a page.
type drawer interface {
	Screenshot(ctx context.Context, scale float64) ([]byte, error)
}

// why is why a picture differs: it shows what is never the same twice, or it is the recorded one at another moment, but for grains.
func (p *player) why(ctx context.Context, page drawer, got *bitmap, want *recorded) string {
	const grain = "2: a pixel rounded otherwise"
	if shows := p.moves(); shows != "" {
		return shows
	}
	if w := p.known[want.Screenshot.Sum]; w != nil { // the same picture, of a moment before
		if g := grains(got, w); len(g) > 0 {
			p.grains = g
		}
	}
	if got.ground(p.grains) == want.Screenshot.Sum {
		return grain
	}
	for n, began := 0, time.Now(); (n < shots || time.Since(began) < later) && ctx.Err() == nil; n++ {
		raw, err := page.Screenshot(ctx, want.Scale)
		if err != nil {
			return ""
		}
		now, err := decode(raw)
		switch {
		case err != nil:
			return ""
		case now.sum() == want.Screenshot.Sum:
			return "README: screenshot, as it is at another moment"
		case now.ground(p.grains) == want.Screenshot.Sum:
			return grain
		}
		time.Sleep(40 * time.Millisecond)
	}
	return ""
}

// moves is the row that says that something on the page moves, or comes and goes, all the time.
func (p *player) moves() string {
	switch name := p.h.called(); {
	case strings.HasPrefix(name, "errors"):
		return "README: errors"
	case strings.HasPrefix(name, "graphics"):
		return "README: graphics"
	case name == "terminal", name == "stock-market", name == "click-pie":
		return "README: " + name
	}
	return ""
}

// A bitmap is a picture's red, green and blue bytes, row by row.
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

// ground is the digest with grains in place.
func (b *bitmap) ground(grains map[int]byte) string {
	out := bitmap{b.width, b.height, bytes.Clone(b.rgb)}
	for i, v := range grains {
		if i < len(out.rgb) {
			out.rgb[i] = v
		}
	}
	return out.sum()
}

// grains are the bytes by which two pictures differ, where they are a few, and each differs by next to nothing.
func grains(got, want *bitmap) map[int]byte {
	out := map[int]byte{}
	if len(got.rgb) != len(want.rgb) {
		return out
	}
	for i, v := range want.rgb {
		d := int(v) - int(got.rgb[i])
		if d == 0 {
			continue
		}
		if d < -2 || d > 2 || len(out) == 12 {
			return map[int]byte{}
		}
		out[i] = v
	}
	return out
}
