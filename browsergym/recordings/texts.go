package recordings

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/browsergym/obs"
)

// Texts has the options of each named text, as in options.json.
type Texts struct {
	AX    map[string]textOptions `json:"axtree"`
	DOM   map[string]textOptions `json:"dom"`
	Prune map[string]string      `json:"prune"`
}

type textOptions struct {
	Visible       bool      `json:"with_visible"`
	Clickable     bool      `json:"with_clickable"`
	Marked        bool      `json:"with_som"`
	Center        bool      `json:"with_center_coords"`
	Box           bool      `json:"with_bounding_box_coords"`
	Decimals      int       `json:"coord_decimals"`
	OnlyVisible   bool      `json:"filter_visible_only"`
	OnlyWithBid   bool      `json:"filter_with_bid_only"`
	OnlyMarked    bool      `json:"filter_som_only"`
	HideInvisible bool      `json:"hide_bid_if_invisible"`
	HideBids      bool      `json:"hide_all_bids"`
	SkipGeneric   *bool     `json:"skip_generic"`
	Redundant     *bool     `json:"remove_redundant_static_text"`
	HideChildren  bool      `json:"hide_all_children"`
	Roles         *[]string `json:"ignored_roles"`
	Properties    *[]string `json:"ignored_properties"`
}

// ReadTexts reads a folder's options.json.
func ReadTexts(dir string) (s Texts, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, "options.json"))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("options.json: %w", err)
	}
	return s, nil
}

func (o textOptions) dom() obs.Options {
	return obs.Options{Visible: o.Visible, Clickable: o.Clickable, Marked: o.Marked, Center: o.Center, Box: o.Box,
		Decimals:    o.Decimals,
		OnlyVisible: o.OnlyVisible, OnlyWithBid: o.OnlyWithBid, OnlyMarked: o.OnlyMarked,
		HideBidIfInvisible: o.HideInvisible, HideBids: o.HideBids}
}

func (o textOptions) ax() obs.AXOptions {
	x := obs.DefaultAX()
	x.Options, x.HideChildren = o.dom(), o.HideChildren
	if o.SkipGeneric != nil {
		x.SkipGeneric = *o.SkipGeneric
	}
	if o.Redundant != nil {
		x.SkipRedundantText = *o.Redundant
	}
	if o.Roles != nil {
		x.IgnoredRoles = *o.Roles
	}
	if o.Properties != nil {
		x.IgnoredProperties = *o.Properties
	}
	return x
}

// A View is the input of the texts.
type View struct {
	DOM        *obs.Snapshot
	AX         *obs.AXTree
	Properties *obs.Properties
}

// Render returns the text with a name and its kind: ax, dom or prune.
func (s *Texts) Render(name string, v View) (kind, text string, err error) {
	if x, ok := s.AX[name]; ok {
		text, err = obs.AXText(v.AX, v.Properties, x.ax())
		return "ax", text, err
	}
	if x, ok := s.DOM[name]; ok {
		text, err = obs.DOMText(v.DOM, v.Properties, x.dom())
		return "dom", text, err
	}
	if of, ok := s.Prune[name]; ok {
		_, text, err = s.Render(of, v)
		return "prune", obs.PruneHTML(text), err
	}
	return "", "", fmt.Errorf("options.json does not say what the text %q is", name)
}
