package cdp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
)

// screenshotLimit limits the time to draw a page. A page can prevent drawing forever, for example
// behind a window that draws nothing.
const screenshotLimit = 30 * time.Second

// Screenshot returns the page's viewport as PNG, with scale pixels per CSS pixel.
func (p *Page) Screenshot(ctx context.Context, scale float64) ([]byte, error) {
	p.acts.Lock()
	defer p.acts.Unlock()
	return p.screenshot(ctx, scale)
}

func (p *Page) screenshot(ctx context.Context, scale float64) ([]byte, error) {
	width, height := p.width, p.height
	if p.c.opts.NoViewport {
		var size struct{ Width, Height int }
		tools, err := p.tools(ctx, p.mainFrame())
		if err == nil {
			err = p.callMethod(ctx, tools, "size", &size)
		}
		if err != nil {
			return nil, fmt.Errorf("drawing the page: %w", err)
		}
		width, height = size.Width, size.Height
	}
	metrics := func(scale float64) map[string]any {
		return map[string]any{"width": width, "height": height, "deviceScaleFactor": scale, "mobile": false}
	}
	var b batch
	var first *Pending
	if !p.resized || scale != 1 { // setting the same metrics again would only cost a layout
		first = b.start(p, "Emulation.setDeviceMetricsOverride", metrics(scale))
	}
	if b.err != nil {
		return nil, b.err
	}
	if first != nil {
		if _, err := first.Wait(ctx); err != nil {
			return nil, fmt.Errorf("drawing the page: %w", err)
		}
	}
	shot := b.start(p, "Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": true})
	if b.err != nil {
		return nil, b.err
	}
	short, cancel := context.WithTimeout(ctx, screenshotLimit)
	raw, err := shot.Wait(short)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		err = &Failure{"TimeoutError", fmt.Sprintf("Page.screenshot: Timeout %dms exceeded.",
			screenshotLimit.Milliseconds())}
	}
	cancel()
	if scale != 1 {
		if q := b.start(p, "Emulation.setDeviceMetricsOverride", metrics(1)); b.err == nil {
			_, b.err = q.Wait(ctx)
		}
	}
	p.resized = true
	if err == nil {
		err = b.err
	}
	var png []byte
	if err == nil {
		png, err = decodeScreenshot(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("drawing the page: %w", err)
	}
	return png, nil
}

// decodeScreenshot decodes {"data":"…"}. A JSON decoder would scan the megabytes three times.
func decodeScreenshot(raw []byte) ([]byte, error) {
	text, ok := bytes.CutPrefix(raw, []byte(`{"data":"`))
	if i := bytes.IndexByte(text, '"'); ok && i >= 0 {
		png := make([]byte, base64.StdEncoding.DecodedLen(i))
		n, err := base64.StdEncoding.Decode(png, text[:i])
		return png[:n], err
	}
	var a struct{ Data []byte }
	err := json.Unmarshal(raw, &a)
	return a.Data, err
}
