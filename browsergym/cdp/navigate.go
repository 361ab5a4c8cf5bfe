package cdp

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Goto loads an address and waits until its document is loaded. The status of the server's response
// does not matter.
func (p *Page) Goto(ctx context.Context, url string) error {
	return p.GotoWithin(ctx, url, p.c.opts.Timeout)
}

// GotoWithin is Goto with its own timeout.
func (p *Page) GotoWithin(ctx context.Context, url string, limit time.Duration) error {
	p.acts.Lock()
	defer p.acts.Unlock()
	return p.withTimeout(ctx, "Page.goto", limit, func(pr *progress) error {
		pr.logf("navigating to \"%s\", waiting until \"load\"", url)
		if isScript(url) {
			return permanentError{"net::ERR_ABORTED at " + url}
		}
		if strings.HasPrefix(url, "localhost") || strings.HasPrefix(url, "127.0.0.1") {
			url = "http://" + url
		}
		// check here first: the browser asks only about requests, and its internal pages cause none
		if p.c.refusesNavigation(url) {
			p.c.reportRefused(url)
			return permanentError{"net::ERR_BLOCKED_BY_CLIENT at " + url}
		}
		main := p.mainFrame()
		p.c.mu.Lock()
		within, before := p.withinDocument, main.loader
		p.c.mu.Unlock()
		raw, err := p.call(pr, "Page.navigate", map[string]any{"url": url, "frameId": main.id})
		if err != nil {
			return err
		}
		var a struct {
			Loader string `json:"loaderId"`
			Error  string `json:"errorText"`
		}
		if err := json.Unmarshal(raw, &a); err != nil {
			return err
		}
		if a.Error != "" {
			if a.Loader != "" && a.Error != "net::ERR_ABORTED" { // wait for the error page
				short, cancel := context.WithTimeout(pr, errorPageLimit)
				p.c.wait(short, func() (bool, error) {
					return slices.Contains(p.loaders, a.Loader) || p.closed || p.crashed, nil
				})
				cancel()
			}
			return permanentError{p.c.netError(a.Error, url) + " at " + url}
		}
		return p.c.wait(pr, func() (bool, error) {
			switch {
			case p.closed:
				return false, ErrGone
			case p.crashed:
				return false, p.crashError()
			case a.Loader == "":
				return p.withinDocument != within, nil
			case slices.Contains(p.loaders, a.Loader): // its script may have navigated to another document already
				return main.lifecycle&loaded != 0, nil
			case main.loader != before && main.url != errorPage:
				return false, permanentError{`Navigation to "` + url + `" is interrupted by another navigation to "` +
					main.url + `"`}
			}
			return false, nil
		})
	})
}

// isScript reports whether an address is a script. The browser would run it in the current page and
// then report that the navigation was aborted, so an agent could write its own reward. Here it is
// not run and only the error is reported.
func isScript(url string) bool {
	url = strings.TrimLeftFunc(url, func(r rune) bool { return r <= ' ' })
	url = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(url) // as browsers parse addresses
	const scheme = "javascript:"
	return len(url) >= len(scheme) && strings.EqualFold(url[:len(scheme)], scheme)
}

// netError returns the error that the browser would report without a proxy.
func (c *Context) netError(text, url string) string {
	if c.opts.NetError != nil && (text == "net::ERR_SOCKS_CONNECTION_FAILED" ||
		text == "net::ERR_SOCKS_CONNECTION_HOST_UNREACHABLE") {
		if t := c.opts.NetError(url); t != "" {
			return t
		}
	}
	return text
}

// errorPage is the address shown after a failed navigation, and errorPageLimit how long it may take
// to appear.
const (
	errorPage      = "chrome-error://chromewebdata/"
	errorPageLimit = time.Second
)

// Back goes back one step in the page's history and waits until the document is loaded. It does
// nothing if there is no history.
func (p *Page) Back(ctx context.Context) error { return p.navigateHistory(ctx, "Page.go_back", -1) }

// Forward goes one step forward.
func (p *Page) Forward(ctx context.Context) error {
	return p.navigateHistory(ctx, "Page.go_forward", 1)
}

func (p *Page) navigateHistory(ctx context.Context, api string, by int) error {
	p.acts.Lock()
	defer p.acts.Unlock()
	return p.withTimeout(ctx, api, p.c.opts.Timeout, func(pr *progress) error {
		raw, err := p.call(pr, "Page.getNavigationHistory", nil)
		if err != nil {
			return err
		}
		var h struct {
			CurrentIndex int
			Entries      []struct{ ID int }
		}
		if err := json.Unmarshal(raw, &h); err != nil {
			return err
		}
		i := h.CurrentIndex + by
		if i < 0 || i >= len(h.Entries) {
			return nil
		}
		pr.logf("waiting for navigation until \"load\"")
		return p.waitNavigation(pr, func() error {
			_, err := p.call(pr, "Page.navigateToHistoryEntry", map[string]any{"entryId": h.Entries[i].ID})
			return err
		})
	})
}

// Reload reloads the page's document.
func (p *Page) Reload(ctx context.Context) error {
	p.acts.Lock()
	defer p.acts.Unlock()
	return p.withTimeout(ctx, "Page.reload", p.c.opts.Timeout, func(pr *progress) error {
		pr.logf("waiting for navigation until \"load\"")
		return p.waitNavigation(pr, func() error {
			_, err := p.call(pr, "Page.reload", nil)
			return err
		})
	})
}

// waitNavigation calls start and waits until the main frame has loaded another document or
// navigated within its document.
func (p *Page) waitNavigation(pr *progress, start func() error) error {
	main := p.mainFrame()
	p.c.mu.Lock()
	within, loader := p.withinDocument, main.loader
	p.c.mu.Unlock()
	if err := start(); err != nil {
		return err
	}
	return p.c.wait(pr, func() (bool, error) {
		switch {
		case p.closed:
			return false, ErrGone
		case p.crashed:
			return false, p.crashError()
		}
		return (p.withinDocument != within || main.loader != loader) && main.lifecycle&loaded != 0, nil
	})
}
