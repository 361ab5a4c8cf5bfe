package cdp

import (
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
)

// event handles an event of the page.
func (p *Page) event(method string, params []byte) {
	take := pageEvents[method]
	if take == nil {
		return
	}
	var e pageEvent
	if json.Unmarshal(params, &e) != nil {
		return
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	take(p, &e)
	p.c.notify()
}

// A pageEvent has the fields that are used of any page event.
type pageEvent struct {
	FrameID  string          `json:"frameId"`
	ParentID string          `json:"parentFrameId"`
	LoaderID string          `json:"loaderId"`
	Request  string          `json:"requestId"`
	Name     string          `json:"name"`
	URL      string          `json:"url"`
	Reason   string          `json:"reason"`
	Type     string          `json:"type"`
	Session  string          `json:"sessionId"`
	Mode     string          `json:"mode"`
	Backend  int             `json:"backendNodeId"`
	Where    string          `json:"disposition"`
	World    int             `json:"executionContextId"`
	Features []string        `json:"windowFeatures"`
	Error    string          `json:"errorText"`
	Canceled bool            `json:"canceled"`
	Data     json.RawMessage `json:"data"`
	Args     []struct {
		Value json.RawMessage `json:"value"`
		Text  string          `json:"description"`
	} `json:"args"`
	Frame   json.RawMessage `json:"frame"`
	Context struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
		Aux  struct {
			Frame   string `json:"frameId"`
			Default bool   `json:"isDefault"`
		} `json:"auxData"`
	} `json:"context"`
	Exception struct {
		Text   string `json:"text"`
		URL    string `json:"url"`
		Object struct {
			Text string `json:"description"`
		} `json:"exception"`
	} `json:"exceptionDetails"`
	Response struct {
		Status int `json:"status"`
	} `json:"response"`
	Sent struct {
		URL string `json:"url"`
	} `json:"request"`
}

// pageEvents are called by the reading goroutine with the context's lock held.
var pageEvents = map[string]func(*Page, *pageEvent){
	"Page.frameAttached": func(p *Page, e *pageEvent) { p.attach(e.FrameID, e.ParentID) },
	"Page.frameDetached": func(p *Page, e *pageEvent) {
		if e.Reason != "swap" {
			p.detach(p.frames[e.FrameID])
		}
	},
	"Page.frameNavigated": func(p *Page, e *pageEvent) {
		var i frameInfo
		if json.Unmarshal(e.Frame, &i) == nil {
			p.committed(i)
		}
	},
	"Page.navigatedWithinDocument": func(p *Page, e *pageEvent) {
		if f := p.frames[e.FrameID]; f != nil {
			f.url = e.URL
			if f.parent == nil {
				p.navigating = nil
				p.withinDocument++
			}
		}
	},
	"Page.lifecycleEvent": func(p *Page, e *pageEvent) {
		f := p.frames[e.FrameID]
		if f == nil { // events of the first document arrive before the frame tree
			f = p.earlyMainFrame(e.FrameID)
		}
		switch {
		case f == nil || f.loader != "" && e.LoaderID != f.loader:
		case e.Name == "DOMContentLoaded":
			f.lifecycle |= domReady
		case e.Name == "load":
			f.lifecycle |= domReady | loaded
		}
	},
	"Page.frameStoppedLoading": func(p *Page, e *pageEvent) {
		if f := p.frames[e.FrameID]; f != nil {
			f.lifecycle |= domReady | loaded
			if f.parent == nil {
				p.navigating = nil
			}
		}
	},
	"Page.frameRequestedNavigation": func(p *Page, e *pageEvent) {
		if f := p.frames[e.FrameID]; f != nil && f.parent == nil && e.Where == "currentTab" {
			p.startNavigation("")
		}
	},
	"Page.frameClearedScheduledNavigation": func(*Page, *pageEvent) {},
	"Page.windowOpen": func(p *Page, e *pageEvent) {
		if len(p.popupSizes) < 100 {
			p.popupSizes = append(p.popupSizes, sizeOf(e.Features))
		}
	},
	"Page.javascriptDialogOpening": func(p *Page, e *pageEvent) {
		p.c.b.Send(p.session, "Page.handleJavaScriptDialog", map[string]any{"accept": e.Type == "beforeunload"})
	},
	"Page.fileChooserOpened": func(p *Page, e *pageEvent) {
		if p.chooser != nil && !p.chooser.opened {
			p.chooser.opened, p.chooser.backend, p.chooser.multiple = true, e.Backend, e.Mode == "selectMultiple"
		}
	},
	"Input.dragIntercepted": func(p *Page, e *pageEvent) { p.drag = slices.Clone(e.Data) },
	"Runtime.bindingCalled": func(p *Page, e *pageEvent) {
		if e.Name == binding {
			p.c.activate(p)
		}
	},
	"Runtime.executionContextCreated": func(p *Page, e *pageEvent) {
		f := p.frames[e.Context.Aux.Frame]
		if f == nil { // its frame is reported later
			f = p.earlyMainFrame(e.Context.Aux.Frame)
		}
		switch {
		case f == nil:
		case e.Context.Aux.Default:
			f.mainContext = e.Context.ID
		case e.Context.Name == isolatedWorld:
			f.isolatedContext, f.markObject, f.toolsObject = e.Context.ID, "", ""
		}
	},
	"Runtime.executionContextDestroyed": func(p *Page, e *pageEvent) {
		for _, f := range p.frames {
			if f.mainContext == e.World {
				f.mainContext = 0
			}
			if f.isolatedContext == e.World {
				f.isolatedContext, f.markObject, f.toolsObject = 0, "", ""
			}
		}
	},
	"Runtime.executionContextsCleared": func(p *Page, _ *pageEvent) {
		for _, f := range p.frames {
			f.mainContext, f.isolatedContext, f.markObject, f.toolsObject = 0, 0, "", ""
		}
	},
	"Network.requestWillBeSent": func(p *Page, e *pageEvent) {
		if f := p.frames[e.FrameID]; f != nil && f.parent == nil && e.Type == "Document" && e.Request == e.LoaderID {
			p.startNavigation(e.Request)
		}
		switch e.Type {
		// these are awaited in other ways, or never end
		case "Document", "Media", "EventSource", "WebSocket", "Ping", "Prefetch":
		default:
			p.requestCount++
			if p.requests == nil {
				p.requests = map[string]bool{}
			}
			if len(p.requests) < maxRequests {
				p.requests[e.Request] = true
			}
		}
	},
	"Network.loadingFinished": func(p *Page, e *pageEvent) { delete(p.requests, e.Request) },
	"Network.responseReceived": func(p *Page, e *pageEvent) {
		if e.Response.Status == 204 || e.Response.Status == 205 {
			p.endNavigation(e.Request)
		}
	},
	"Network.loadingFailed": func(p *Page, e *pageEvent) {
		p.endNavigation(e.Request)
		delete(p.requests, e.Request)
		if !e.Canceled {
			p.addMessage(Message{Kind: "network", Text: e.Error})
		}
	},
	"Runtime.consoleAPICalled": func(p *Page, e *pageEvent) {
		var text []string
		for _, a := range e.Args {
			var s string
			switch {
			case json.Unmarshal(a.Value, &s) == nil && len(a.Value) > 0:
				text = append(text, s)
			case len(a.Value) > 0:
				text = append(text, string(a.Value))
			default:
				text = append(text, a.Text)
			}
		}
		p.addMessage(Message{Kind: "console", Text: e.Type + ": " + strings.Join(text, " ")})
	},
	"Runtime.exceptionThrown": func(p *Page, e *pageEvent) {
		text := e.Exception.Object.Text
		if text == "" {
			text = e.Exception.Text
		}
		p.addMessage(Message{Kind: "exception", Text: text, URL: e.Exception.URL})
	},
	"Fetch.requestPaused": func(p *Page, e *pageEvent) {
		if p.c.isRefused(e.Sent.URL) {
			p.c.reportRefused(e.Sent.URL)
			p.c.b.Send(p.session, "Fetch.failRequest",
				map[string]any{"requestId": e.Request, "errorReason": "BlockedByClient"})
			return
		}
		p.c.b.Send(p.session, "Fetch.continueRequest", map[string]any{"requestId": e.Request})
	},
	"Target.attachedToTarget": func(p *Page, e *pageEvent) { // workers, which wait to be started
		p.c.b.Handle(e.Session, func(string, []byte) {})
		p.c.b.Send(e.Session, "Runtime.runIfWaitingForDebugger", nil)
		p.c.b.Send(p.session, "Target.detachFromTarget", map[string]any{"sessionId": e.Session})
	},
	"Target.detachedFromTarget": func(p *Page, e *pageEvent) { p.c.b.Handle(e.Session, nil) },
	"Inspector.targetCrashed": func(p *Page, _ *pageEvent) {
		p.crashed = true
		p.c.b.End(p.session, p.crashError())
	},
}

// maxRequests limits the number of tracked requests of a page.
const maxRequests = 1000

// earlyMainFrame adds the main frame if an event about it comes before the frame tree. The lock is
// held.
func (p *Page) earlyMainFrame(id string) *frame {
	if p.main != nil || id == "" {
		return nil
	}
	return p.attach(id, "")
}

func (p *Page) startNavigation(loader string) {
	if p.navigating == nil {
		p.navigating = map[string]bool{}
	}
	if loader != "" {
		delete(p.navigating, "")
	}
	if len(p.navigating) < 100 {
		p.navigating[loader] = true
	}
}

func (p *Page) endNavigation(loader string) {
	if p.navigating[loader] {
		delete(p.navigating, loader)
	}
}

// isRefused reports whether an address may not be loaded.
func (c *Context) isRefused(url string) bool {
	for _, a := range c.opts.Allow {
		if matches(a, url) {
			return false
		}
	}
	for _, r := range c.opts.Refuse {
		if matches(r, url) {
			return true
		}
	}
	return false
}

// refusesNavigation reports whether an agent may not navigate to an address. The browser reads
// "FILE:/etc" and " file:etc" as file:///etc.
func (c *Context) refusesNavigation(s string) bool {
	if len(c.opts.Refuse) == 0 {
		return false
	}
	s = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, strings.TrimFunc(s, func(r rune) bool { return r <= ' ' }))
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok {
		return c.isRefused(s)
	}
	scheme = strings.ToLower(scheme)
	if scheme == "file" {
		rest = strings.ReplaceAll(rest, `\`, "/")
		rest = "//" + path.Clean("/"+strings.TrimLeft(rest, "/")) // there are no files on other hosts
	}
	return c.isRefused(scheme + ":" + rest)
}

// reportRefused calls OnRefuse.
func (c *Context) reportRefused(url string) {
	if c.opts.OnRefuse != nil {
		c.opts.OnRefuse(url)
	}
}

// matches reports whether s matches a pattern, in which a star stands for any text.
func matches(pattern, s string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, first)
	if !ok {
		return false
	}
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], after
	}
}

// sizeOf parses a popup's size from the features given to window.open.
func sizeOf(features []string) (size [2]int) {
	for _, f := range features {
		if v, ok := strings.CutPrefix(f, "width="); ok {
			size[0], _ = strconv.Atoi(v)
		}
		if v, ok := strings.CutPrefix(f, "height="); ok {
			size[1], _ = strconv.Atoi(v)
		}
	}
	return size
}
