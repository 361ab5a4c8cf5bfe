package browsergym

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A Task is one problem. It is made for one episode and used by one goroutine.
type Task interface {
	// Settings returns the settings of the episode's browser.
	Settings() Settings
	// Setup takes the page, which is empty, to the start of the episode. It may open more pages in
	// the page's context.
	Setup(ctx context.Context, page *cdp.Page) (Start, error)
	// Validate judges each step. page is the active page. Changes of the active page by Validate
	// are undone before the agent continues.
	Validate(ctx context.Context, page *cdp.Page, chat []Message) (Verdict, error)
	// Teardown ends the task before its pages are closed.
	Teardown(ctx context.Context) error
}

// A Looker is a [Task] whose Validate only reads pages and chat and changes nothing, so that a page
// may be prepared for its observation before Validate is called.
type Looker interface{ OnlyLooks() }

// Settings of a task. A zero field means its default.
type Settings struct {
	Width, Height int           // of the viewport; 0 means 1280 and 720
	SlowMo        time.Duration // pause after each of the agent's calls, in pace [Reference]
	Timeout       time.Duration // of navigations and waits; 0 means 5 s
	Locale        string
	TimeZone      string
}

// A Start is the result of a task's set-up.
type Start struct {
	Goal []Item // see [Text]; empty if the goal is given later in the chat
	Info map[string]any
	// Scale is the number of pixels, in the screenshot and the agent's coordinates, per CSS pixel
	// of the set-up's page. 0 means 1.
	Scale float64
}

// A Verdict is a task's judgment of a step.
type Verdict struct {
	Reward  float64
	Done    bool
	Message string // the user's reply; may be ""
	Info    map[string]any
}

// An Item is a part of a goal: text, or an image given by its address. Type is "text" or
// "image_url".
type Item struct {
	Type  string
	Text  string
	Image string
	bare  bool // the address is not wrapped in an object
}

// Text returns a goal that consists of text.
func Text(s string) []Item { return []Item{{Type: "text", Text: s}} }

// UnmarshalJSON decodes an item in the format of chat APIs: {"type": "text", "text": …} or {"type":
// "image_url", "image_url": … or {"url": …}}.
func (i *Item) UnmarshalJSON(b []byte) error {
	var v struct {
		Type  string          `json:"type"`
		Text  string          `json:"text"`
		Image json.RawMessage `json:"image_url"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*i = Item{Type: v.Type, Text: v.Text}
	if len(v.Image) == 0 {
		return nil
	}
	if json.Unmarshal(v.Image, &i.Image) == nil {
		i.bare = true
		return nil
	}
	var o struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(v.Image, &o); err != nil {
		return fmt.Errorf("a goal's image: %w", err)
	}
	i.Image = o.URL
	return nil
}

// MarshalJSON encodes the item in the form in which it was decoded.
func (i Item) MarshalJSON() ([]byte, error) {
	if i.Type != "image_url" {
		return json.Marshal(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{i.Type, i.Text})
	}
	var image any = map[string]string{"url": i.Image}
	if i.bare {
		image = i.Image
	}
	return json.Marshal(struct {
		Type  string `json:"type"`
		Image any    `json:"image_url"`
	}{i.Type, image})
}

// noText follows the part of a goal's text before its first image.
const noText = "WARNING: the rest of this goal is no text. Read it from the goal's items; an agent that knows only this text cannot do the task."

// goalText returns a goal for agents that accept only text.
func goalText(goal []Item) string {
	var lines []string
	for _, i := range goal {
		if i.Type != "text" {
			lines = append(lines, noText)
			break
		}
		lines = append(lines, i.Text)
	}
	return strings.Join(lines, "\n")
}

// checkGoal returns an error for items of unknown type.
func checkGoal(goal []Item) error {
	for _, i := range goal {
		if i.Type != "text" && i.Type != "image_url" {
			return fmt.Errorf("a goal's item is of the unknown type %q; use text or image_url", i.Type)
		}
	}
	return nil
}

// Openended is a task without an end: a start page, and a user who says "exit" to stop.
type Openended struct {
	URL     string // the start page
	Goal    []Item
	Browser Settings
}

// openLimit is how long the first page of an open-ended task may take to load.
const openLimit = 10 * time.Second

func (o *Openended) Settings() Settings { return o.Browser }

func (o *Openended) Setup(ctx context.Context, page *cdp.Page) (Start, error) {
	if o.URL == "" {
		return Start{}, errors.New("an openended task needs an address to begin with")
	}
	if err := page.GotoWithin(ctx, o.URL, openLimit); err != nil {
		return Start{}, err
	}
	return Start{Goal: o.Goal, Info: map[string]any{}}, nil
}

func (o *Openended) Validate(_ context.Context, _ *cdp.Page, chat []Message) (v Verdict, _ error) {
	v.Info = map[string]any{}
	for _, m := range chat {
		v.Done = v.Done || m.Role == User && m.Text == "exit"
	}
	return v, nil
}

func (o *Openended) Teardown(context.Context) error { return nil }

// OnlyLooks implements [Looker].
func (o *Openended) OnlyLooks() {}
