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

// ContextOptions say what an episode's pages are like. Zero fields are the defaults.
type ContextOptions struct {
	Width, Height int               // of the viewport; 0: 1280 and 720
	NoViewport    bool              // pages are as large as their window, which is opened with Width and Height
	Locale        string            // "de-DE"; "": the browser's
	TimeZone      string            // "Europe/Berlin"; "": the browser's
	Headers       map[string]string // added to each request
	Proxy         string            // "http://127.0.0.1:8080"; "": none
	// hosts that do not go through it; "<-loopback>" sends those of this machine through it, too
	Bypass        string
	Refuse        []string // patterns ("file://*") of addresses that no page may load
	Allow         []string // exceptions from Refuse
	Downloads     string   // folder for what pages download; "": downloads are refused
	DownloadLimit int64    // bytes that one download may have; 0: 100 MB
	DownloadTotal int64    // bytes that all of them may have; 0: five times as much as one
	// folder to which files are copied before a page gets them, for a browser that sees no others;
	// "": none is needed
	Uploads string
	// folders whose files pages may get, beside Downloads; empty: none. "/" allows every file
	UploadFrom    []string
	Scripts       []string      // run in each document before its own
	Timeout       time.Duration // of a navigation; 0: 5 s
	ActionTimeout time.Duration // of an action on an element; 0: 500 ms
	SlowMo        time.Duration // pause after each call that the reference slows down
	// bytes that its origins may store together (IndexedDB, caches, files of their own), in the
	// browser's memory; 0: what the browser lets them
	Storage     int64
	MaxPages    int  // more are closed as soon as they open; 0: 50
	FixedPauses bool // pause as long as the reference does where otherwise an event is waited for
	// called once, when the context has been closed; the error is what Close returns
	OnClose func(error)
	// what a navigation there failed with ("net::ERR_NAME_NOT_RESOLVED"), where the browser knows
	// only that its proxy failed; "": not known
	NetError func(url string) string
	OnRefuse func(url string) // called for each address that was refused; it must not block
	// becomes the context; opened ahead with the same Proxy and Bypass, and not for NoViewport;
	// nil: a new one is made
	Prewarmed *Prewarmed
	// a screenshot leaves screen.width and screen.height as they were, unlike the reference's
	KeepScreenSize bool
}

// A Context is a browser's profile for one episode: what its pages store is seen by no other. Its
// methods may be called from several goroutines.
type Context struct {
	b         *Browser
	id        string
	opts      ContextOptions
	prewarmed *Prewarmed // what it was before; nil: nothing

	mu           sync.Mutex
	changed      chan struct{} // closed, and made anew, whenever something below or of a page has changed
	pages        []*Page       // open ones, oldest first
	active       *Page
	history      []*Page         // pages that were active, the last one last
	refused      int             // pages closed because there were too many
	targets      map[string]bool // of all pages that it had, closed and refused ones too: main frames have their names
	downloads    []Download
	unreported   map[string]bool // downloads, by their names, that the last look found and no event told of
	log          []Message
	dropped      int             // messages that were one too many
	origins      map[string]bool // whose storage is bounded
	storageQuota int64           // bytes that they may store
	closed       bool
}

// A Download is a file that a page has downloaded, or is about to.
type Download struct {
	URL, Name string
	Path      string // where it is, under a name of its own
	Size      int64
	State     string // inProgress, completed, canceled
	guid      string
}

// A Message is what a page said on its console, an exception that nobody caught, or a request that
// failed.
type Message struct {
	Kind string // console, exception, network
	Text string
	URL  string
}

// maxMessages bounds what is kept of a context's messages, and maxMessageText each of them.
const (
	maxMessages    = 1000
	maxMessageText = 4 << 10
)

// NewContext makes a context without pages.
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

// notify tells all that wait. c.mu is held.
func (c *Context) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// wait waits until done, which is called with c.mu held, is true or fails.
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

// NewPage opens a page, which becomes the active one, and waits until it can be used. It shows
// about:blank.
func (c *Context) NewPage(ctx context.Context) (*Page, error) {
	if c.prewarmed != nil {
		if session, target := c.prewarmed.take(); session != "" {
			p := c.attached(session, target, "")
			if q, err := c.waitReady(ctx, target); !errors.Is(err, ErrGone) {
				return q, err
			}
			p.setClosed() // its process has just died, while nobody was there: another one comes
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

// waitReady waits until a page that is being opened can be used.
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

// Pages are the open pages in the order of their creation.
func (c *Context) Pages() []*Page {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pages)
}

// activate notes that a page has reported that something happened on it. c.mu is held.
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

// Activity is which page is the active one, and which were before.
type Activity struct {
	Active  *Page
	History []*Page // the last one last
}

// Activity returns what pages have reported so far; see [Context.Sync].
func (c *Context) Activity() Activity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Activity{c.active, slices.Clone(c.history)}
}

// SetActivity puts an earlier state back.
func (c *Context) SetActivity(a Activity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active, c.history = a.Active, slices.Clone(a.History)
	c.notify()
}

// ErrNoActive: no page that was ever active is open, though others are.
var ErrNoActive = errors.New("the active page is not among the open pages")

// Active returns the active page after checking it: without any page one is opened, and a closed
// one is replaced by the one that was active before it.
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

// Sync returns when all that pages had reported before is known here: it asks each of them a
// question and waits for the answer. A page that does not answer within limit is not waited for.
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

// WaitDOM waits, page after page and frame after frame, until the current document's
// DOMContentLoaded has fired, at most limit for each page and each frame. It fails only when ctx or
// the browser ends.
func (c *Context) WaitDOM(ctx context.Context, limit time.Duration) error {
	for _, p := range c.Pages() {
		// the page itself, then its frames, as the reference does
		for _, f := range append([]*frame{p.mainFrame()}, p.allFrames()...) {
			if err := p.waitFrame(ctx, f, domReady, limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// Downloads are those so far.
func (c *Context) Downloads() []Download {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.downloads)
}

// Messages takes the messages so far, and how many more there were than are kept.
func (c *Context) Messages() (all []Message, dropped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, dropped = c.log, c.dropped
	c.log, c.dropped = nil, 0
	return all, dropped
}

// Refused counts the pages that were closed as they opened, because there were too many.
func (c *Context) Refused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// addMessage keeps a message. c.mu is held.
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

// addMessage keeps a message of the page's, unless nobody shall know of it. c.mu is held.
func (p *Page) addMessage(m Message) {
	if !p.muted {
		p.c.addMessage(m)
	}
}

// Mute keeps what the page says and fails to load, now and later, out of the context's messages: a
// judge's page, say, would tell the agent what it looks at.
func (p *Page) Mute() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.muted = true
}

// disposeLimit is how long a browser may take to forget a context.
const disposeLimit = 15 * time.Second

// Close closes all pages, without asking them, and forgets what they stored. It may be called
// again, it works after ctx has ended, and it takes at most a quarter of a minute, also when the
// browser hangs.
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

// Browser is the browser that the context is one of.
func (c *Context) Browser() *Browser { return c.b }
