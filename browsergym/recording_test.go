package browsergym_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// header is the first line of a recording.
type header struct {
	Name     string                      `json:"name"`
	Task     string                      `json:"task"` // of MiniWoB: "miniwob.click-test"
	Start    string                      `json:"start_url"`
	Base     string                      `json:"base_url"`
	Seed     uint32                      `json:"seed"`
	Limit    float64                     `json:"episode_max_time"`
	Viewport struct{ Width, Height int } `json:"viewport"`
	SlowMo   float64                     `json:"slow_mo"`
	Timeout  float64                     `json:"timeout"`
	Tags     string                      `json:"tags_to_mark"`
	Delay    float64                     `json:"pre_observation_delay"`
	Locale   string                      `json:"locale"`
	TimeZone string                      `json:"timezone_id"`
	GiveUp   *bool                       `json:"terminate_on_infeasible"`
	Set      struct {
		Multi  *bool `json:"multiaction"`
		Strict bool  `json:"strict"`
		Force  bool  `json:"retry_with_force"`
	} `json:"action_set"`
}

func ms(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }

// options are those of an environment that plays the recording.
func (h *header) options(t testing.TB) browsergym.Options {
	slow := ms(h.SlowMo)
	o := browsergym.Options{AllTags: h.Tags == "all", Native: true, SlowMo: &slow, Delay: ms(h.Delay * 1000), GoOn: h.GiveUp != nil && !*h.GiveUp}
	o.Context.Width, o.Context.Height, o.Context.Timeout = h.Viewport.Width, h.Viewport.Height, ms(h.Timeout)
	o.Context.Locale, o.Context.TimeZone = h.Locale, h.TimeZone
	o.Actions = everything(t, action.Options{Single: h.Set.Multi != nil && !*h.Set.Multi, Strict: h.Set.Strict, Retry: h.Set.Force})
	return o
}

// recorded is an observation.
type recorded struct {
	Kind       string               `json:"kind"`
	Index      int                  `json:"index"`
	Action     string               `json:"action"`
	Error      string               `json:"error"`
	Chat       []browsergym.Message `json:"chat_messages"`
	Goal       string               `json:"goal"`
	GoalObject []browsergym.Item    `json:"goal_object"`
	URLs       []string             `json:"open_pages_urls"`
	Titles     []string             `json:"open_pages_titles"`
	Active     int                  `json:"active_page_index"`
	URL        string               `json:"url"`
	Focused    string               `json:"focused_element_bid"`
	LastAction string               `json:"last_action"`
	LastError  string               `json:"last_action_error"`
	Reward     float64              `json:"reward"`
	Terminated bool                 `json:"terminated"`
	Truncated  bool                 `json:"truncated"`
	Timeout    float64              `json:"action_exec_timeout"`
	TaskInfo   map[string]any       `json:"task_info"`
	Screenshot struct {
		Width, Height int
		Sum           string `json:"sha256_rgb"`
	} `json:"screenshot"`
	Properties obs.Properties    `json:"extra_element_properties"`
	Texts      map[string]string `json:"texts"`
}

func readRecording(t testing.TB, file string) (h header, all []recorded) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bufio.NewReaderSize(z, 1<<20))
	if err := d.Decode(&h); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for d.More() {
		var o recorded
		if err := d.Decode(&o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, o)
	}
	return h, all
}

// textSets are the options behind the names of texts.
type textSets struct {
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

func readSets(t testing.TB, dir string) (s textSets) {
	raw, err := os.ReadFile(filepath.Join(dir, "options.json"))
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (o textOptions) dom() obs.Options {
	return obs.Options{Visible: o.Visible, Clickable: o.Clickable, Marked: o.Marked, Center: o.Center, Box: o.Box, Decimals: o.Decimals,
		OnlyVisible: o.OnlyVisible, OnlyWithBid: o.OnlyWithBid, OnlyMarked: o.OnlyMarked, HideBidIfInvisible: o.HideInvisible, HideBids: o.HideBids}
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

// render is the text of a name; ok is false when the name means nothing.
func (s *textSets) render(name string, o *browsergym.Observation) (text string, ok bool, err error) {
	if x, ok := s.AX[name]; ok {
		text, err = obs.AXText(o.AX, o.Properties, x.ax())
		return text, true, err
	}
	if x, ok := s.DOM[name]; ok {
		text, err = obs.DOMText(o.DOM, o.Properties, x.dom())
		return text, true, err
	}
	if of, ok := s.Prune[name]; ok {
		text, ok, err = s.render(of, o)
		return obs.PruneHTML(text), ok, err
	}
	return "", false, nil
}
