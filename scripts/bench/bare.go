package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A bare page is driven only by the calls that any environment has to make. It measures the time
// that the browser itself takes.
type bare struct {
	b       *cdp.Browser
	context string
	session string
	loaded  chan struct{}
}

// A bareBrowser opens bare pages, one at a time.
type bareBrowser struct {
	*cdp.Browser
	attached chan string // sessions of new pages
}

func launchBare(ctx context.Context) (*bareBrowser, error) {
	b, err := cdp.Launch(ctx, cdp.Options{})
	if err != nil {
		return nil, err
	}
	r := &bareBrowser{b, make(chan string, 100)}
	// replaces the handler that creates evalrun's own pages
	b.Handle("", func(method string, params []byte) {
		var e struct {
			Session string `json:"sessionId"`
		}
		if method == "Target.attachedToTarget" && json.Unmarshal(params, &e) == nil {
			b.Handle(e.Session, func(string, []byte) {})
			r.attached <- e.Session
		}
	})
	return r, nil
}

// openBare opens a page with the given viewport.
func openBare(ctx context.Context, b *bareBrowser, url string, width, height int) (p *bare, err error) {
	p = &bare{b: b.Browser, loaded: make(chan struct{}, 100)}
	raw, err := b.Call(ctx, "", "Target.createBrowserContext", object{"disposeOnDetach": true})
	if err != nil {
		return nil, err
	}
	var made struct {
		Context string `json:"browserContextId"`
	}
	if err := json.Unmarshal(raw, &made); err != nil {
		return nil, err
	}
	p.context = made.Context
	if _, err := b.Call(ctx, "", "Target.createTarget",
		object{"url": "about:blank", "browserContextId": p.context}); err != nil {
		return nil, err
	}
	select {
	case p.session = <-b.attached:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b.Handle(p.session, func(method string, _ []byte) {
		if method == "Page.loadEventFired" {
			p.loaded <- struct{}{}
		}
	})
	return p, p.calls(ctx, [][2]any{
		{"Page.enable", nil},
		{"Emulation.setDeviceMetricsOverride",
			object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}},
		{"Runtime.runIfWaitingForDebugger", nil},
		{"Page.navigate", object{"url": url}},
	}, true)
}

// calls makes calls in sequence, each with a method and parameters. If load is set, it then waits
// for the page to load.
func (p *bare) calls(ctx context.Context, all [][2]any, load bool) error {
	for _, c := range all {
		if _, err := p.b.Call(ctx, p.session, c[0].(string), c[1]); err != nil {
			return err
		}
	}
	if !load {
		return nil
	}
	select {
	case <-p.loaded:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ready injects the script that marks elements into the page.
func (p *bare) ready(ctx context.Context) error {
	script, err := os.ReadFile("browsergym/cdp/mark_elements.js")
	if err != nil {
		return err
	}
	raw, err := p.b.Call(ctx, p.session, "Runtime.evaluate",
		object{"expression": "window.bareMarks = " +
			strings.TrimSpace(string(script)[strings.Index(string(script), "(() =>"):])})
	if err != nil {
		return err
	}
	if strings.Contains(string(raw), "exceptionDetails") {
		return fmt.Errorf("mark_elements.js: %.300s", raw)
	}
	return nil
}

// look makes the calls of one observation: set marks, visibility, trees, remove marks, screenshot.
func (p *bare) look(ctx context.Context, picture bool, width, height int, scale float64) error {
	all := [][2]any{
		{"Runtime.evaluate", object{"expression": "bareMarks.mark('', false)"}},
		{"Runtime.evaluate", object{"expression": "bareMarks.settled(1000)", "awaitPromise": true}},
		{"DOMSnapshot.captureSnapshot", object{"computedStyles": []string{}, "includeDOMRects": true,
			"includePaintOrder": true}},
		{"Accessibility.getFullAXTree", nil},
		{"Runtime.evaluate", object{"expression": "bareMarks.unmark()"}},
	}
	if picture {
		metrics := func(s float64) object {
			return object{"width": width, "height": height, "deviceScaleFactor": s, "mobile": false}
		}
		if scale != 1 {
			all = append(all, [2]any{"Emulation.setDeviceMetricsOverride", metrics(scale)})
		}
		all = append(all, [2]any{"Page.captureScreenshot", object{"format": "png", "optimizeForSpeed": true}})
		if scale != 1 {
			all = append(all, [2]any{"Emulation.setDeviceMetricsOverride", metrics(1)})
		}
	}
	return p.calls(ctx, all, false)
}

// click makes the minimum calls for a click.
func (p *bare) click(ctx context.Context, x, y float64) error {
	event := func(kind string) [2]any {
		return [2]any{"Input.dispatchMouseEvent",
			object{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}}
	}
	return p.calls(ctx, [][2]any{event("mouseMoved"), event("mousePressed"), event("mouseReleased")}, false)
}

func (p *bare) close(ctx context.Context) error {
	_, err := p.b.Call(ctx, "", "Target.disposeBrowserContext", object{"browserContextId": p.context})
	return err
}
