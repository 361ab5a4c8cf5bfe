package webagent

import (
	"context"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/webtext"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// A page is what the model is shown of the latest observation.
type page struct {
	event.Browsed
	tabs, focused, errors bool
	html, ax              string
	hasHTML, hasAX        bool
	screenshot            *event.Blob
}

// page renders the latest observation according to the options.
func (s *stepper) page(ctx context.Context) (*page, error) {
	v := webtext.Look(s.session.Log, *s.now)
	p := &page{Browsed: *s.now, focused: on(s.cfg.Focused), errors: on(s.cfg.Errors)}
	// Show the error of the previous action. It may differ from that of the latest observation, if
	// the action was not executed or the observation is from an empty Browse.
	p.Error = ""
	if n := len(s.past); n > 0 {
		p.Error = s.past[n-1].err
	}
	p.tabs = len(p.Pages) > 1 || s.can("tab_focus")
	if s.cfg.Tabs != nil {
		p.tabs = *s.cfg.Tabs
	}
	o := s.texts(v.Properties != nil)
	var err error
	if kind := s.html(); kind != "none" {
		if p.html, p.hasHTML, err = v.HTML(ctx, o); err != nil {
			return nil, err
		}
		if kind == "pruned" {
			p.html = obs.PruneHTML(p.html)
		}
	}
	if on(s.cfg.AX) {
		ax := obs.DefaultAX()
		ax.Options = o
		if p.ax, p.hasAX, err = v.AX(ctx, ax); err != nil {
			return nil, err
		}
	}
	switch s.cfg.Screenshot {
	case "plain":
		p.screenshot = v.Screenshot
	case "marks":
		if p.screenshot, err = v.SetOfMarks(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// texts returns the options of the HTML and the tree. It leaves out what needs element properties
// if the environment did not record any.
func (s *stepper) texts(properties bool) obs.Options {
	if !properties {
		return obs.Options{}
	}
	return obs.Options{
		Visible: on(s.cfg.Visible), Clickable: on(s.cfg.Clickable), Center: s.cfg.Coords == "center",
		Box:         s.cfg.Coords == "box",
		OnlyVisible: s.cfg.OnlyVisible, OnlyWithBid: s.cfg.OnlyWithBid, OnlyMarked: s.cfg.OnlyMarked,
	}
}

// html returns the kind of HTML that is shown.
func (s *stepper) html() string {
	if s.cfg.HTML != "" && s.cfg.HTML != "auto" {
		return s.cfg.HTML
	}
	for _, sub := range s.options.Subsets {
		if strings.HasPrefix(sub, "miniwob") {
			return "pruned"
		}
	}
	return "none"
}

func (s *stepper) can(name string) bool {
	for _, x := range s.set.Specs() {
		if x.Name == name {
			return true
		}
	}
	return false
}

// Rounds of shrinking: as many as in the reference, whose first rounds cut nothing.
const (
	rounds   = 20
	cutsHTML = 6  // first round that cuts the HTML
	cutsAX   = 11 // first round that cuts the tree
)

// fit returns the message about a page, shrunk to the token limit. It first cuts the end of the
// HTML, then also the end of the tree, then the oldest turns of the history, then the middles of
// what is left.
func (s *stepper) fit(p *page) []event.Part {
	fixed := *p
	said := s.sections(&fixed, 0)
	for round := cutsHTML; round <= rounds && tokens(said) > s.limit; round++ {
		fixed.html = shorten(p.html, round-cutsHTML+1)
		if round >= cutsAX {
			fixed.ax = shorten(p.ax, round-cutsAX+1)
		}
		said = s.sections(&fixed, 0)
	}
	for n := 1; n < len(s.past) && tokens(said) > s.limit; n++ {
		said = s.sections(&fixed, n)
	}
	if over := tokens(said) - s.limit; over > 0 { // very long lines
		for _, t := range []*string{&fixed.html, &fixed.ax} {
			if over <= 0 {
				break
			}
			was := len(*t)
			*t = middle(*t, max(was-over*bytesPerToken-200, 200))
			over -= (was - len(*t)) / bytesPerToken
		}
		said = s.sections(&fixed, max(len(s.past)-1, 0))
	}
	return said
}

// shorten keeps the first seven tenths of the lines, applied the given number of times.
func shorten(text string, times int) string {
	lines := strings.Split(text, "\n")
	n := len(lines)
	for range times {
		n = max(n*7/10, 1) // a single long line is cut elsewhere
	}
	if n == len(lines) {
		return text
	}
	return strings.Join(lines[:n], "\n") + fmt.Sprintf("\n... Deleted %d lines to reduce prompt size.", len(lines)-n)
}

// middle cuts a text to limit by removing its middle.
func middle(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit/2], "") +
		fmt.Sprintf("\n... Deleted %d characters to reduce prompt size.\n", len(s)-limit) +
		strings.ToValidUTF8(s[len(s)-limit/2:], "")
}

const (
	bytesPerToken = 3 // for pages, which are full of brackets and numbers; prose has more
	imageTokens   = 1000
)

func tokens(said []event.Part) int {
	n := 0
	for _, p := range said {
		if p.Blob != nil {
			n += imageTokens
		}
		n += len(p.Text) / bytesPerToken
	}
	return n
}
