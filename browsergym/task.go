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

// A Task is one problem. It is made anew for each episode and used by one goroutine.
type Task interface {
	// Settings say what the episode's browser is like.
	Settings() Settings
	// Setup brings the page, which is empty, to where the episode begins. It may open more pages in
	// the page's context.
	Setup(ctx context.Context, page *cdp.Page) (Start, error)
	// Validate judges after each step. page is the active one; pages that Validate opens or chooses
	// do not stay so for the agent.
	Validate(ctx context.Context, page *cdp.Page, chat []Message) (Verdict, error)
	// Teardown ends the task, before its pages are closed.
	Teardown(ctx context.Context) error
}

// A Looker is a [Task] whose Validate reads what pages and the chat say and changes nothing of
// them, so that a page may be prepared for its observation before Validate is asked.
type Looker interface{ OnlyLooks() }

// Settings of a task. Zero fields are the defaults.
type Settings struct {
	Width, Height int           // of the viewport; 0: 1280 and 720
	SlowMo        time.Duration // pause after each of the agent's calls, in [Reference] pace
	Timeout       time.Duration // of navigations and waits; 0: 5 s
	Locale        string
	TimeZone      string
}

// A Start is what a task's set-up says.
type Start struct {
	Goal []Item // see [Text]; none when the goal is said later, in the chat
	Info map[string]any
	// of the set-up's page: pixels of its screenshot, and of the agent's coordinates, for one of
	// CSS; 0: 1
	Scale float64
}

// A Verdict is what a task thinks of a step.
type Verdict struct {
	Reward  float64
	Done    bool
	Message string // what the user says to it; ""
	Info    map[string]any
}

// An Item is a part of a goal: a text, or an image by its address. Type is "text" or "image_url".
type Item struct {
	Type  string
	Text  string
	Image string
	bare  bool // the address stands alone, without an object around it
}

// Text is a goal that is a text.
func Text(s string) []Item { return []Item{{Type: "text", Text: s}} }

// UnmarshalJSON reads an item as chat interfaces write it: {"type": "text", "text": …} or {"type":
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

// MarshalJSON writes the item as it was read.
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

// noText follows what a goal has of text before its first image.
const noText = "WARNING: the rest of this goal is no text. Read it from the goal's items; an agent that knows only this text cannot do the task."

// goalText is a goal for agents that know only text.
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

// checkGoal refuses items of a type that nobody knows.
func checkGoal(goal []Item) error {
	for _, i := range goal {
		if i.Type != "text" && i.Type != "image_url" {
			return fmt.Errorf("a goal's item is of the unknown type %q; use text or image_url", i.Type)
		}
	}
	return nil
}

// Openended is the task of no end: a page to begin with, and a user who says "exit" when it is
// enough.
type Openended struct {
	URL     string // where it begins
	Goal    []Item
	Browser Settings
}

// openLimit is how long an openended task's first page may take.
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

// OnlyLooks: see [Looker].
func (o *Openended) OnlyLooks() {}
