package webtext

import (
	"context"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/webtext/html2text"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// TextOptions are the options of [View.Text].
type TextOptions struct {
	OnlyVisible bool   // show only the visible part of the page
	Saved       string // file from which the model can read the screenshot; "" if there is none
}

// Text describes an observation for an agent that uses tools: the current address, whether the
// action worked, and the page as an accessibility tree with bids. Its format is that of OpenHands'
// BrowserEnv.
func (v *View) Text(ctx context.Context, o TextOptions) (string, error) {
	var w strings.Builder
	fmt.Fprintf(&w, "[Current URL: %s]\n[Focused element bid: %s]\n", line(v.URL), line(v.Focused))
	if o.Saved != "" {
		fmt.Fprintf(&w, "[Screenshot saved to: %s]\n", o.Saved)
	}
	w.WriteString("\n")
	v.tabs(&w)
	if v.Error == "" {
		w.WriteString("[Action executed successfully.]\n")
	} else {
		v.failure(&w)
	}
	v.downloads(&w)
	if err := v.properties(ctx); err != nil {
		return "", err
	}
	ax := obs.DefaultAX()
	ax.SkipGeneric = false
	ax.Clickable, ax.OnlyVisible = v.props != nil, o.OnlyVisible && v.props != nil
	tree, ok, err := v.AX(ctx, ax)
	if err != nil {
		return "", err
	}
	switch {
	case !ok:
		w.WriteString("The environment gives no accessibility tree of the page.\n")
		return w.String(), nil
	case ax.OnlyVisible:
		w.WriteString("Accessibility tree of what is visible of the page now; scroll to see more.\n")
	default:
		w.WriteString("Accessibility tree of the whole page; some of it may have to be scrolled to.\n")
	}
	fmt.Fprintf(&w, "A bid in square brackets names an element in the calls that act on it, and holds until the "+
		"page changes.\n"+
		"============== BEGIN accessibility tree ==============\n%s\n============== END accessibility tree "+
		"==============\n", tree)
	return w.String(), nil
}

// PageText describes the page after such an agent has opened an address: its text with links,
// without bids.
func (v *View) PageText(ctx context.Context) (string, error) {
	var w strings.Builder
	fmt.Fprintf(&w, "[Current URL: %s]\n", line(v.URL))
	if v.Error != "" {
		v.failure(&w)
	}
	v.downloads(&w)
	text, err := v.Content(ctx)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&w, "============== BEGIN webpage content ==============\n%s\n============== END webpage content "+
		"==============\n", text)
	return w.String(), nil
}

// Content returns the page's text as Markdown, including links.
func (v *View) Content(ctx context.Context) (string, error) {
	html, ok, err := v.HTML(ctx, obs.Options{})
	if err != nil || !ok {
		return "", err
	}
	return html2text.Convert(html), nil
}

func (v *View) failure(w *strings.Builder) {
	fmt.Fprintf(w, "================ BEGIN error message ===============\nThe action failed:\n%s\n================ "+
		"END error message ===============\n", v.Error)
}

// tabs lists the open pages if there are several, because an agent may have to switch.
func (v *View) tabs(w *strings.Builder) {
	if len(v.Pages) < 2 {
		return
	}
	for i, p := range v.Pages {
		active := ""
		if i == v.Active {
			active = ", active"
		}
		fmt.Fprintf(w, "[Tab %d%s: %s, %s]\n", i, active, line(p.Title), line(p.URL))
	}
}

func (v *View) downloads(w *strings.Builder) {
	for _, d := range v.Downloads {
		fmt.Fprintf(w, "[Download %s: %s, %d bytes", line(d.State), line(d.Name), d.Size)
		if d.Path != "" {
			fmt.Fprintf(w, ", saved to %s", line(d.Path))
		}
		w.WriteString("]\n")
	}
}

// line puts s on one line, so that text of a page cannot imitate our own lines.
func line(s string) string { return strings.Join(strings.Fields(s), " ") }

// Parts returns an observation for a model that uses tools, as text and, depending on picture, an
// image: "plain", "marks" or none.
func (v *View) Parts(ctx context.Context, action event.Body, picture string, o TextOptions) ([]event.Part, error) {
	var text string
	var err error
	if _, ok := action.(event.BrowseURL); ok {
		text, err = v.PageText(ctx)
	} else {
		text, err = v.Text(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	parts := event.Text(text)
	var shot *event.Blob
	switch picture {
	case "plain":
		shot = v.Screenshot
	case "marks":
		if shot, err = v.SetOfMarks(ctx); err != nil {
			return nil, err
		}
	}
	if shot != nil {
		parts = append(parts, event.Part{Blob: shot})
	}
	return parts, nil
}
