package browsergym

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// An Observation is what an agent sees after a step.
type Observation struct {
	Chat       []Message       `json:"chat_messages"`
	Goal       string          `json:"goal"` // for agents that accept only text
	GoalObject []Item          `json:"goal_object"`
	URLs       []string        `json:"open_pages_urls"` // of the open pages, oldest first
	Titles     []string        `json:"open_pages_titles"`
	Active     int             `json:"active_page_index"`
	URL        string          `json:"url"`                  // of the active page; the fields below are about it too
	Screenshot []byte          `json:"screenshot,omitempty"` // PNG
	DOM        *obs.Snapshot   `json:"dom_object,omitempty"`
	AX         *obs.AXTree     `json:"axtree_object,omitempty"`
	Properties *obs.Properties `json:"extra_element_properties,omitempty"`
	Focused    string          `json:"focused_element_bid"` // "" if none
	LastAction string          `json:"last_action"`
	LastError  string          `json:"last_action_error"` // "" if none
	Elapsed    float64         `json:"elapsed_time"`      // seconds since Reset

	Page     *cdp.Page `json:"-"` // the active page itself
	Warnings []string  `json:"-"` // things that went wrong
}

// observe returns the observation of the active page.
func (e *Env) observe(ctx context.Context) (*Observation, error) {
	page, err := e.context.Active(ctx)
	if err != nil {
		return nil, fmt.Errorf("observing: %w", err)
	}
	o := &Observation{
		Chat: e.chat.copy(), Goal: goalText(e.goal), GoalObject: append([]Item{}, e.goal...),
		LastAction: e.lastAction, LastError: e.lastError, Page: page, Active: -1,
	}
	if e.marked != nil && e.marked != page {
		e.marked.Unmark(ctx)
	}
	e.marked = nil
	if !e.o.Raw {
		seen, err := page.Observe(ctx, e.observeOptions(page))
		if err != nil {
			return nil, fmt.Errorf("observing %s: %w", page.URL(), err)
		}
		o.DOM, o.AX, o.Properties, o.Focused, o.Warnings = seen.Snapshot, seen.AX, seen.Properties, seen.Focused,
			seen.Warnings
		o.Screenshot = seen.Picture
		if o.AX != nil && !e.o.Native {
			obs.Chromium125(o.AX, explicitCells(o.DOM))
		}
	}
	// one limit for all of them, because an agent may have many hanging tabs
	short, cancel := context.WithTimeout(ctx, domLimit)
	defer cancel()
	for i, p := range e.context.Pages() {
		if p == page {
			o.Active = i
		}
		title, err := e.title(ctx, short, p)
		if err != nil {
			return nil, fmt.Errorf("observing %s: %w", p.URL(), err)
		}
		o.URLs, o.Titles = append(o.URLs, p.URL()), append(o.Titles, title)
	}
	o.URL = page.URL()
	o.Elapsed = time.Since(e.began).Seconds()
	return o, nil
}

// observeOptions returns the options for the observation of a page.
func (e *Env) observeOptions(page *cdp.Page) cdp.ObserveOptions {
	return cdp.ObserveOptions{AllTags: e.o.AllTags, Scale: e.scale(page), NoAX: e.o.NoAX, Picture: !e.o.NoScreenshot}
}

// title returns a page's title, or "" if the page is navigating or does not answer before short
// ends.
func (e *Env) title(ctx, short context.Context, p *cdp.Page) (string, error) {
	for range 3 {
		s, err := p.Title(short)
		switch {
		case err == nil:
			return s, nil
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case errors.Is(err, cdp.ErrClosed):
			return "", err
		case short.Err() != nil || p.Closed() || p.Crashed():
			return "", nil
		}
	}
	return "", nil
}

// explicitCells returns a function that reports whether an element has role="cell" itself.
func explicitCells(s *obs.Snapshot) func(int) bool {
	var cells map[int]bool
	return func(backend int) bool {
		if cells == nil {
			cells = map[int]bool{}
			for i := range s.Documents {
				n := &s.Documents[i].Nodes
				for k, attrs := range n.Attributes {
					for j := 0; j+1 < len(attrs); j += 2 {
						if k < len(n.BackendNodeID) && str(s, attrs[j]) == "role" && str(s, attrs[j+1]) == "cell" {
							cells[n.BackendNodeID[k]] = true
						}
					}
				}
			}
		}
		return cells[backend]
	}
}

func str(s *obs.Snapshot, i int) string {
	if i < 0 || i >= len(s.Strings) {
		return ""
	}
	return s.Strings[i]
}
