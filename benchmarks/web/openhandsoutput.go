package web

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/webtext"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// A BrowserOutput is what a [BrowserEnv] tells after an action; its JSON has OpenHands' names.
type BrowserOutput struct {
	Content     string   `json:"content"` // what the agent reads
	URL         string   `json:"url"`
	Screenshot  string   `json:"screenshot"` // a PNG as a data URL; ""
	Saved       string   `json:"screenshot_path,omitempty"`
	Marks       string   `json:"set_of_marks"` // the screenshot with the marks of elements, as a data URL; ""
	GoalImages  []string `json:"goal_image_urls"`
	URLs        []string `json:"open_pages_urls"`
	Active      int      `json:"active_page_index"`
	Focused     string   `json:"focused_element_bid"`
	LastAction  string   `json:"last_browser_action"`
	LastError   string   `json:"last_browser_action_error"`
	Error       bool     `json:"error"`
	Trigger     string   `json:"trigger_by_action"` // browse, browse_interactive
	OnlyVisible bool     `json:"filter_visible_only"`

	Text       string                 `json:"-"` // the page as Markdown; of GetGoal and GetRewards, what they ask for
	Whole      browsergym.Observation `json:"-"` // with the tree, the DOM and the properties
	Downloaded string                 `json:"-"` // a file that came instead of a page: where the agent finds it
}

// failedOutput is what an agent is told of a step that failed by itself.
func failedOutput(code string, plain bool, why string) *BrowserOutput {
	return &BrowserOutput{Content: why, LastAction: code, LastError: why, Error: true, Trigger: trigger(plain),
		Active: -1}
}

func trigger(plain bool) string {
	if plain {
		return event.BrowseURL{}.Kind()
	}
	return event.Browse{}.Kind()
}

// output tells of an observation.
func (b *BrowserEnv) output(ctx context.Context, o *browsergym.Observation, plain bool) (*BrowserOutput, error) {
	out := &BrowserOutput{
		URL: o.URL, URLs: o.URLs, Active: o.Active, Focused: o.Focused, LastAction: o.LastAction,
		LastError: o.LastError, Error: o.LastError != "",
		Trigger: trigger(plain), Whole: *o, GoalImages: b.evalGoal().GoalImages,
	}
	var err error
	if out.Saved, err = b.save(o.Screenshot); err != nil {
		return nil, err
	}
	if len(o.Screenshot) > 0 {
		out.Screenshot = pngURL(o.Screenshot)
		marked, err := Marked(o.Screenshot, propertiesOf(o))
		if err != nil {
			return nil, fmt.Errorf("drawing marks: %w", err)
		}
		out.Marks = pngURL(marked)
	}
	v := webtext.Of(event.Browsed{URL: o.URL, Focused: o.Focused, Action: o.LastAction, Error: o.LastError,
		Active: o.Active}, o.AX, o.DOM, o.Properties)
	if out.Text, err = v.Content(ctx); err != nil {
		return nil, err
	}
	if plain {
		out.Content, err = v.PageText(ctx)
	} else {
		out.Content, err = v.Text(ctx, webtext.TextOptions{Saved: out.Saved})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func propertiesOf(o *browsergym.Observation) *obs.Properties {
	if o.Properties != nil {
		return o.Properties
	}
	return &obs.Properties{}
}

func pngURL(png []byte) string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(png)
}

// downloaded tells of a file that came instead of a page, where there is one: the action that
// fetched it has failed as a navigation.
func (b *BrowserEnv) downloaded(ctx context.Context, out *BrowserOutput) (*BrowserOutput, error) {
	if b.c.Keep == nil || b.env.Context() == nil {
		return out, nil
	}
	for _, d := range b.env.Context().Downloads() {
		if b.seen[d.Path] || d.State != "completed" || d.Path == "" {
			continue
		}
		b.seen[d.Path] = true
		ext, err := extension(d.Path)
		if err != nil {
			return nil, fmt.Errorf("reading a download: %w", err)
		}
		b.kept++
		path, err := b.c.Keep(ctx, fmt.Sprintf("file_%d%s", b.kept, ext), d.Path)
		if err != nil {
			return nil, fmt.Errorf("keeping a download: %w", err)
		}
		out.Downloaded = path
		out.Content = fmt.Sprintf("The action has downloaded a file. It is %s.", path)
		return out, nil
	}
	return out, nil
}

// extension is what a file's content looks like: ".pdf", ".png" …; "" where it says nothing.
func extension(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return "", err
	}
	kind, _, _ := strings.Cut(http.DetectContentType(head[:n]), ";")
	return extensions[kind], nil
}

// extensions of what files begin with; texts begin with anything.
var extensions = map[string]string{
	"application/pdf": ".pdf", "image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp",
	"image/bmp":       ".bmp",
	"application/zip": ".zip", "application/x-gzip": ".gz", "application/x-rar-compressed": ".rar",
	"application/wasm": ".wasm",
	"audio/mpeg":       ".mp3", "audio/wave": ".wav", "application/ogg": ".ogg", "video/mp4": ".mp4",
	"video/webm": ".webm",
	"video/avi":  ".avi",
	"font/woff":  ".woff", "font/woff2": ".woff2", "font/ttf": ".ttf", "font/otf": ".otf", "text/html": ".html",
	"text/xml": ".xml", "text/plain": ".txt",
}
