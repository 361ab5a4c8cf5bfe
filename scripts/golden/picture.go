package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image/png"
	"strings"
	"time"

	"github.com/evalrun/evalrun/browsergym"
)

// later is how long a picture that differs is taken again, to see whether another moment explains it: carets blink once a second.
const later = 1300 * time.Millisecond

// picture compares the screenshot, pixel by pixel.
func (p *player) picture(ctx context.Context, where string, o *browsergym.Observation, want *recorded) error {
	width, height, sum, err := pixels(o.Screenshot)
	if err != nil {
		return err
	}
	p.c.add(where, difference{"screenshot size", fmt.Sprint(width, height), fmt.Sprint(want.Screenshot.Width, want.Screenshot.Height)}, unexcused)
	why := ""
	if sum != want.Screenshot.Sum {
		why = p.why(ctx, o, want)
	}
	p.c.add(where, difference{"screenshot", sum, want.Screenshot.Sum}, func(difference) string { return why })
	return nil
}

func unexcused(difference) string { return "" }

// why is why a picture differs: another moment of the same page gives the recorded one, or it shows what is never the same twice.
func (p *player) why(ctx context.Context, o *browsergym.Observation, want *recorded) string {
	if shows := p.moves(); shows != "" {
		return shows
	}
	for began := time.Now(); time.Since(began) < later && ctx.Err() == nil; {
		raw, err := o.Page.Screenshot(ctx, want.Scale)
		if err != nil {
			return ""
		}
		if _, _, sum, err := pixels(raw); err == nil && sum == want.Screenshot.Sum {
			return "README: screenshot, as it is at another moment"
		}
		time.Sleep(50 * time.Millisecond)
	}
	return ""
}

// moves is the row that says that something on the page moves, or comes and goes, all the time.
func (p *player) moves() string {
	switch name := p.h.called(); {
	case strings.HasPrefix(name, "errors"):
		return "README: errors"
	case strings.HasPrefix(name, "graphics"), name == "terminal", name == "stock-market", name == "click-pie":
		return "README: " + name
	}
	return ""
}

// pixels is a picture's size, and the digest of its red, green and blue bytes.
func pixels(raw []byte) (width, height int, sum string, err error) {
	img, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		return 0, 0, "", fmt.Errorf("the screenshot: %w", err)
	}
	width, height = img.Bounds().Dx(), img.Bounds().Dy()
	rgb := make([]byte, 0, width*height*3)
	for y := range height {
		for x := range width {
			r, g, b, _ := img.At(x, y).RGBA()
			rgb = append(rgb, byte(r>>8), byte(g>>8), byte(b>>8))
		}
	}
	digest := sha256.Sum256(rgb)
	return width, height, hex.EncodeToString(digest[:]), nil
}
