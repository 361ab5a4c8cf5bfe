package cdp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	_ "embed"
)

// A Page is a tab or a popup. It is safe for concurrent use, except that input, navigation and
// observation must be called by one goroutine at a time.
type Page struct {
	c       *Context
	session string
	target  string
	width   int // of its viewport
	height  int

	// The fields below are protected by the context's lock.
	main           *frame
	frames         map[string]*frame
	ready          bool
	closed         bool
	crashed        bool
	crashCause     error           // why the page was killed; nil means errCrashed
	navigating     map[string]bool // pending navigations of the main frame: loaders, "" if not known yet
	requests       map[string]bool // pending requests that began after the last observation
	requestCount   int             // requests that began after the last observation
	loaders        []string        // of the main frame's last documents
	withinDocument int             // number of navigations within the document
	popupSizes     [][2]int        // sizes of the next popups that it opens
	chooser        *fileChooser    // nil if no call waits for a file chooser
	drag           json.RawMessage // data of the last intercepted drag
	muted          bool            // its messages are dropped
	resized        bool            // a screenshot has set the size of the screen

	input input
	acts  sync.Mutex // held by actions and observations
}

// isolatedWorld is the name of our script context in each frame. Its script calls binding to report
// activity.
const (
	isolatedWorld = "evalrun"
	binding       = "browsergym_page_activated"
)

//go:embed activity.js
var activityScript string

//go:embed page.js
var pageScript string

// event handles the events of the browser session.
func (b *Browser) event(method string, params []byte) {
	switch method {
	case "Target.attachedToTarget":
		var e struct {
			Session string `json:"sessionId"`
			Waiting bool   `json:"waitingForDebugger"`
			Info    struct {
				ID      string `json:"targetId"`
				Type    string `json:"type"`
				Context string `json:"browserContextId"`
				Opener  string `json:"openerId"`
			} `json:"targetInfo"`
		}
		if json.Unmarshal(params, &e) != nil {
			return
		}
		if e.Info.Type == "page" && b.attachPrewarmed(e.Info.Context, e.Session, e.Info.ID) {
			return
		}
		b.mu.Lock()
		c := b.contexts[e.Info.Context]
		b.mu.Unlock()
		if c == nil || e.Info.Type != "page" {
			b.Handle(e.Session, func(string, []byte) {})
			b.Send(e.Session, "Runtime.runIfWaitingForDebugger", nil)
			if e.Info.Type != "service_worker" { // it has not started yet and would wait forever
				b.Send("", "Target.detachFromTarget", map[string]any{"sessionId": e.Session})
			}
			return
		}
		c.attached(e.Session, e.Info.ID, e.Info.Opener)
	case "Target.detachedFromTarget":
		var e struct {
			Session string `json:"sessionId"`
		}
		if json.Unmarshal(params, &e) != nil {
			return
		}
		for _, c := range b.allContexts() {
			for _, p := range c.Pages() {
				if p.session == e.Session {
					p.setClosed()
				}
			}
		}
		b.detachPrewarmed(e.Session)
		b.Handle(e.Session, nil)
	case "Browser.downloadWillBegin", "Browser.downloadProgress":
		b.download(method, params)
	}
}

func (b *Browser) allContexts() []*Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*Context, 0, len(b.contexts))
	for _, c := range b.contexts {
		all = append(all, c)
	}
	return all
}

// attached sets up a new page, which waits before its first document.
func (c *Context) attached(session, target, opener string) *Page {
	c.mu.Lock()
	p := &Page{c: c, session: session, target: target, width: c.opts.Width, height: c.opts.Height,
		frames: map[string]*frame{}}
	for _, q := range c.pages {
		if q.target == opener && len(q.popupSizes) > 0 {
			if size := q.popupSizes[0]; size[0] > 0 && size[1] > 0 {
				p.width, p.height = size[0], size[1]
			}
			q.popupSizes = q.popupSizes[1:]
		}
	}
	if len(c.targets) < maxTargets {
		c.targets[target] = true
	}
	if len(c.pages) >= c.opts.MaxPages || c.closed {
		c.refused++
		c.mu.Unlock()
		c.b.Handle(session, func(string, []byte) {})
		c.b.Send(session, "Runtime.runIfWaitingForDebugger", nil) // a waiting page does not close
		c.b.Send("", "Target.closeTarget", map[string]any{"targetId": target})
		return p
	}
	c.pages = append(c.pages, p)
	c.mu.Unlock()
	c.b.Handle(session, p.event)
	first, err := p.setUp()
	if err != nil {
		return p // the browser has ended with all pages
	}
	go func() {
		raw, err := first.Wait(context.Background()) // ends with the session
		if err != nil {
			return
		}
		var t struct {
			Tree tree `json:"frameTree"`
		}
		if json.Unmarshal(raw, &t) != nil {
			return
		}
		c.mu.Lock()
		p.addFrameTree(t.Tree)
		p.ready = true
		c.notify()
		c.mu.Unlock()
	}()
	return p
}

// setUp sends the settings of a page that must apply to its first document.
func (p *Page) setUp() (frames *Pending, err error) {
	o := &p.c.opts
	send := func(method string, params any) { p.c.b.Send(p.session, method, params) }
	send("Page.enable", nil)
	send("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true})
	send("Runtime.enable", nil)
	send("Inspector.enable", nil)
	// response bodies are not needed
	send("Network.enable", map[string]any{"maxTotalBufferSize": 1, "maxResourceBufferSize": 1})
	send("Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true})
	if !o.NoViewport {
		send("Emulation.setDeviceMetricsOverride",
			map[string]any{"width": p.width, "height": p.height, "screenWidth": p.width, "screenHeight": p.height,
				"deviceScaleFactor": 1, "mobile": false,
				"screenOrientation": map[string]any{"angle": 0, "type": "landscapePrimary"}})
	}
	send("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true})
	send("Emulation.setEmulatedMedia", map[string]any{"media": "", "features": []map[string]string{
		{"name": "prefers-color-scheme", "value": "light"},
		{"name": "prefers-reduced-motion", "value": "no-preference"}, {"name": "forced-colors", "value": "none"}}})
	send("Page.setFontFamilies", map[string]any{
		"fontFamilies": map[string]string{"standard": "Times New Roman", "serif": "Times New Roman",
			"sansSerif": "Arial", "fixed": "Monospace", "cursive": "Comic Sans MS", "fantasy": "Impact"}})
	if o.Locale != "" {
		send("Emulation.setLocaleOverride", map[string]any{"locale": o.Locale})
		send("Emulation.setUserAgentOverride", map[string]any{"userAgent": "", "acceptLanguage": o.Locale})
	}
	if o.TimeZone != "" {
		send("Emulation.setTimezoneOverride", map[string]any{"timezoneId": o.TimeZone})
	}
	if len(o.Headers) > 0 {
		send("Network.setExtraHTTPHeaders", map[string]any{"headers": o.Headers})
	}
	if len(o.Refuse) > 0 {
		var patterns []map[string]string
		for _, r := range o.Refuse {
			patterns = append(patterns, map[string]string{"urlPattern": r})
		}
		send("Fetch.enable", map[string]any{"patterns": patterns})
	}
	send("Runtime.addBinding", map[string]any{"name": binding, "executionContextName": isolatedWorld})
	send("Page.addScriptToEvaluateOnNewDocument",
		map[string]any{"source": activityScript, "worldName": isolatedWorld, "runImmediately": true})
	for _, s := range append([]string{pageScript}, o.Scripts...) {
		send("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": s, "runImmediately": true})
	}
	frames, err = p.c.b.Start(p.session, "Page.getFrameTree", nil)
	send("Runtime.runIfWaitingForDebugger", nil)
	return frames, err
}

// setClosed records that the page is closed.
func (p *Page) setClosed() {
	p.c.mu.Lock()
	if !p.closed {
		p.closed = true
		p.c.pages = slices.DeleteFunc(p.c.pages, func(q *Page) bool { return q == p })
		p.detach(p.main)
		p.c.notify()
	}
	p.c.mu.Unlock()
	p.c.b.Handle(p.session, nil)
}

// URL returns the address of the page's document.
func (p *Page) URL() string {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.main == nil {
		return ""
	}
	return p.main.url
}

// Document returns the address from which the page's document was loaded, even if its script has
// changed the address since.
func (p *Page) Document() string {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.main == nil {
		return ""
	}
	return p.main.document
}

// Closed reports whether the page is closed.
func (p *Page) Closed() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.closed
}

// Crashed reports whether the page's process has died.
func (p *Page) Crashed() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.crashed
}

// Context returns the page's context.
func (p *Page) Context() *Context { return p.c }

// Close closes the page without asking it.
func (p *Page) Close(ctx context.Context) error {
	if _, err := p.c.b.Call(ctx, "", "Target.closeTarget", map[string]any{"targetId": p.target}); err != nil &&
		!p.Closed() {
		return fmt.Errorf("closing a page: %w", err)
	}
	return p.c.wait(ctx, func() (bool, error) { return p.closed, nil })
}

// BringToFront brings the page to the front. The page can observe this.
func (p *Page) BringToFront(ctx context.Context) error {
	_, err := p.call(ctx, "Page.bringToFront", nil)
	return err
}

// Report makes the page report activity, as the reference does after switching pages.
func (p *Page) Report(ctx context.Context) error {
	tools, err := p.tools(ctx, p.mainFrame())
	if err != nil {
		return err
	}
	return p.callMethod(ctx, tools, "show", nil)
}

// call makes a call in the page's session.
func (p *Page) call(ctx context.Context, method string, params any) ([]byte, error) {
	return p.c.b.Call(ctx, p.session, method, params)
}
