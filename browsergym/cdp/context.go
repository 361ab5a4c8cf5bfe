package cdp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ContextOptions are the options of an episode's pages. A zero field means its default.
type ContextOptions struct {
	Width, Height int               // of the viewport; 0 means 1280 and 720
	NoViewport    bool              // the viewport is the window, which is opened with Width and Height
	Locale        string            // "de-DE"; "" means the browser's
	TimeZone      string            // "Europe/Berlin"; "" means the browser's
	Headers       map[string]string // added to each request
	Proxy         string            // "http://127.0.0.1:8080"; "" means none
	// Bypass lists hosts that are reached without the proxy; "<-loopback>" sends requests to this
	// machine through it too.
	Bypass        string
	Refuse        []string // patterns ("file://*") of addresses that pages may not load
	Allow         []string // exceptions from Refuse
	Downloads     string   // folder for downloads; "" refuses downloads
	DownloadLimit int64    // maximum bytes of one download; 0 means 100 MB
	DownloadTotal int64    // maximum bytes of all downloads; 0 means five times DownloadLimit
	// Uploads is a folder to which files are copied before a page gets them, for a browser that can
	// read no others; "" if that is not needed.
	Uploads string
	// UploadFrom lists the folders whose files pages may get, in addition to Downloads. "/" allows
	// every file.
	UploadFrom    []string
	Scripts       []string      // run in each document before its own scripts
	Timeout       time.Duration // of a navigation; 0 means 5 s
	ActionTimeout time.Duration // of an action on an element; 0 means 500 ms
	SlowMo        time.Duration // pause after each call that the reference slows down
	// Storage is how many bytes the context's origins may store together (IndexedDB, caches,
	// private files), in the browser's memory; 0 means the browser's own limit.
	Storage     int64
	MaxPages    int  // further pages are closed as soon as they open; 0 means 50
	FixedPauses bool // pause as long as the reference instead of waiting for an event
	// OnClose is called once, after the context has been closed, with the error that Close returns.
	OnClose func(error)
	// NetError returns why a navigation failed ("net::ERR_NAME_NOT_RESOLVED") if the browser knows
	// only that its proxy failed; "" if not known.
	NetError func(url string) string
	OnRefuse func(url string) // called for each refused address; must not block
	// Prewarmed becomes the context. It was opened in advance with the same Proxy and Bypass and
	// does not support NoViewport. If nil, a new context is made.
	Prewarmed *Prewarmed
	// KeepScreenSize keeps screen.width and screen.height during a screenshot, unlike the
	// reference.
	KeepScreenSize bool
}

// A Context is a browser profile for one episode. Other contexts cannot see what its pages store.
// It is safe for concurrent use.
type Context struct {
	b         *Browser
	id        string
	opts      ContextOptions
	prewarmed *Prewarmed // the prewarmed context that it was made from; may be nil

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced whenever a field below or a page changes
	pages        []*Page       // open pages, oldest first
	active       *Page
	history      []*Page         // pages that were active, latest last
	refused      int             // number of pages closed because there were too many
	targets      map[string]bool // of all its pages, including closed and refused ones; main frames have the same IDs
	downloads    []Download
	unreported   map[string]bool // names of downloads that the last check found and no event has reported
	log          []Message
	dropped      int             // number of messages over the limit
	origins      map[string]bool // origins whose storage is limited
	storageQuota int64           // bytes that they may store
	closed       bool
}

// A Download is a file that a page has downloaded or is downloading.
type Download struct {
	URL, Name string
	Path      string // where it is stored, under a generated name
	Size      int64
	State     string // inProgress, completed, canceled
	guid      string
}

// A Message is a console message of a page, an uncaught exception, or a failed request.
type Message struct {
	Kind string // console, exception, network
	Text string
	URL  string
}

// maxMessages limits the number of messages kept for a context, maxMessageText the length of each.
const (
	maxMessages    = 1000
	maxMessageText = 4 << 10
)

// NewContext returns a context without pages.
func (b *Browser) NewContext(ctx context.Context, o ContextOptions) (*Context, error) {
	if o.Width <= 0 {
		o.Width = 1280
	}
	if o.Height <= 0 {
		o.Height = 720
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.ActionTimeout == 0 {
		o.ActionTimeout = 500 * time.Millisecond
	}
	if o.MaxPages == 0 {
		o.MaxPages = 50
	}
	if o.DownloadLimit == 0 {
		o.DownloadLimit = 100 << 20
	}
	if o.DownloadTotal == 0 {
		o.DownloadTotal = 5 * o.DownloadLimit
	}
	c := &Context{b: b, opts: o, prewarmed: o.Prewarmed, changed: make(chan struct{}), targets: map[string]bool{}}
	if c.prewarmed != nil {
		c.id = c.prewarmed.id
	} else if id, err := b.newContext(ctx, o.Proxy, o.Bypass); err != nil {
		return nil, err
	} else {
		c.id = id
	}
	b.mu.Lock()
	b.contexts[c.id] = c
	b.mu.Unlock()
	behaviour := map[string]any{"behavior": "deny", "browserContextId": c.id, "eventsEnabled": true}
	if o.Downloads != "" {
		behaviour["behavior"], behaviour["downloadPath"] = "allowAndName", o.Downloads
	}
	if _, err := b.Call(ctx, "", "Browser.setDownloadBehavior", behaviour); err != nil {
		c.Close(ctx)
		return nil, fmt.Errorf("making a browser context: %w", err)
	}
	return c, nil
}

// notify wakes all waiters. c.mu is held.
func (c *Context) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait waits until done returns true or an error. done is called with c.mu held.
func (c *Context) wait(ctx context.Context, done func() (bool, error)) error {
	for {
		c.mu.Lock()
		ok, err := done()
		changed := c.changed
		c.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-c.b.Done():
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// NewPage opens a page and waits until it can be used. The page becomes the active one and shows
// about:blank.
func (c *Context) NewPage(ctx context.Context) (*Page, error) {
	if c.prewarmed != nil {
		if session, target := c.prewarmed.take(); session != "" {
			p := c.attached(session, target, "")
			if q, err := c.waitReady(ctx, target); !errors.Is(err, ErrGone) {
				return q, err
			}
			p.setClosed() // its process died while the context was unused; open another page
			c.b.Send("", "Target.closeTarget", map[string]any{"targetId": target})
		}
	}
	params := map[string]any{"url": "about:blank", "browserContextId": c.id}
	if c.opts.NoViewport {
		params["width"], params["height"] = c.opts.Width, c.opts.Height
	}
	raw, err := c.b.Call(ctx, "", "Target.createTarget", params)
	if err != nil {
		return nil, fmt.Errorf("opening a page: %w", err)
	}
	var made struct {
		ID string `json:"targetId"`
	}
	if err := json.Unmarshal(raw, &made); err != nil {
		return nil, fmt.Errorf("opening a page: %w", err)
	}
	return c.waitReady(ctx, made.ID)
}

// waitReady waits until a new page can be used.
func (c *Context) waitReady(ctx context.Context, target string) (p *Page, err error) {
	err = c.wait(ctx, func() (bool, error) {
		i := slices.IndexFunc(c.pages, func(q *Page) bool { return q.target == target })
		switch {
		case c.closed, i < 0 && c.targets[target]:
			return false, ErrGone
		case i < 0:
			return false, nil
		case c.pages[i].crashed:
			return false, errCrashed
		case !c.pages[i].ready:
			return false, nil
		}
		p = c.pages[i]
		c.activate(p)
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("opening a page: %w", err)
	}
	return p, nil
}

// Pages returns the open pages in the order of their creation.
func (c *Context) Pages() []*Page {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pages)
}

// activate records that a page has reported activity. c.mu is held.
func (c *Context) activate(p *Page) {
	if p.closed {
		return
	}
	if c.active == p && len(c.history) > 0 && c.history[len(c.history)-1] == p {
		return
	}
	c.active = p
	c.history = append(slices.DeleteFunc(c.history, func(q *Page) bool { return q == p }), p)
	c.notify()
}

// An Activity says which page is active and which were active before.
type Activity struct {
	Active  *Page
	History []*Page // latest last
}

// Activity returns the current state according to the pages' reports so far; see [Context.Sync].
func (c *Context) Activity() Activity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Activity{c.active, slices.Clone(c.history)}
}

// SetActivity restores an earlier state.
func (c *Context) SetActivity(a Activity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active, c.history = a.Active, slices.Clone(a.History)
	c.notify()
}

// ErrNoActive reports that pages are open but none of them was ever active.
var ErrNoActive = errors.New("the active page is not among the open pages")

// Active returns the active page. If no page is open, it opens one. If the active page is closed,
// the page that was active before it becomes active.
func (c *Context) Active(ctx context.Context) (*Page, error) {
	c.mu.Lock()
	none := len(c.pages) == 0
	c.mu.Unlock()
	if none {
		return c.NewPage(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for (c.active == nil || c.active.closed) && len(c.history) > 0 {
		c.history = slices.DeleteFunc(c.history, func(q *Page) bool { return q == c.active })
		c.active = nil
		if n := len(c.history); n > 0 {
			c.active = c.history[n-1]
		}
	}
	if c.active == nil || c.active.closed {
		return nil, ErrNoActive
	}
	return c.active, nil
}

// Sync returns once everything that pages reported before the call has been processed. It sends a
// request to each page and waits for the responses, at most limit for a page that does not answer.
func (c *Context) Sync(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var all []*Pending
	for _, p := range c.Pages() {
		if q, err := c.b.Start(p.session, "Page.enable", nil); err == nil {
			all = append(all, q)
		}
	}
	for _, q := range all {
		if _, err := q.Wait(ctx); errors.Is(err, ErrClosed) {
			return err
		}
	}
	return nil
}

// WaitDOM waits, page by page and frame by frame, for DOMContentLoaded of the current document, at
// most limit for each page and each frame. It returns an error only if ctx or the browser ends.
func (c *Context) WaitDOM(ctx context.Context, limit time.Duration) error {
	for _, p := range c.Pages() {
		// the page, then its frames, in the order of the reference
		for _, f := range append([]*frame{p.mainFrame()}, p.allFrames()...) {
			if err := p.waitFrame(ctx, f, domReady, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// Downloads returns the downloads so far.
func (c *Context) Downloads() []Download {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.downloads)
}

// Messages returns and removes the messages so far, and the number of messages that were dropped.
func (c *Context) Messages() (all []Message, dropped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, dropped = c.log, c.dropped
	c.log, c.dropped = nil, 0
	return all, dropped
}

// Refused returns the number of pages that were closed when they opened, because there were too
// many.
func (c *Context) Refused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// addMessage adds a message. c.mu is held.
func (c *Context) addMessage(m Message) {
	if len(c.log) >= maxMessages {
		c.dropped++
		return
	}
	if len(m.Text) > maxMessageText {
		m.Text = m.Text[:maxMessageText]
	}
	c.log = append(c.log, m)
}

// addMessage adds a message of the page, unless the page is muted. c.mu is held.
func (p *Page) addMessage(m Message) {
	if !p.muted {
		p.c.addMessage(m)
	}
}

// Mute keeps current and later messages of the page out of the context's messages. For example, a
// grader's page would reveal to the agent what it checks.
func (p *Page) Mute() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.muted = true
}

// disposeLimit is how long a browser may take to dispose of a context.
const disposeLimit = 15 * time.Second

// Close closes all pages without asking them and deletes what they stored. It may be called again,
// works after ctx has ended, and returns within 15 seconds even if the browser hangs.
func (c *Context) Close(ctx context.Context) error {
	c.mu.Lock()
	was := c.closed
	c.closed = true
	c.mu.Unlock()
	if was {
		return nil
	}
	var err error
	if c.prewarmed != nil {
		err = c.prewarmed.Close(ctx)
	} else {
		err = c.b.dispose(ctx, c.id)
	}
	c.b.mu.Lock()
	delete(c.b.contexts, c.id)
	c.b.mu.Unlock()
	for _, p := range c.Pages() {
		p.setClosed()
	}
	if c.opts.OnClose != nil {
		c.opts.OnClose(err)
	}
	return err
}

// Browser returns the context's browser.
func (c *Context) Browser() *Browser { return c.b }
