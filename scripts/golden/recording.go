package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// header is the first line of a recording.
type header struct {
	Name     string                      `json:"name"`
	Task     string                      `json:"task"` // of MiniWoB++: "miniwob.click-test"
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

// called is the page's name in the recordings' README: "nav-errors", "click-pie".
func (h *header) called() string { return h.Name + strings.TrimPrefix(h.Task, "miniwob.") }

func ms(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }

// options are those of an environment that plays the recording.
func (h *header) options() (browsergym.Options, error) {
	slow := ms(h.SlowMo)
	o := browsergym.Options{AllTags: h.Tags == "all", Native: true, SlowMo: &slow, Delay: ms(h.Delay * 1000), GoOn: h.GiveUp != nil && !*h.GiveUp}
	o.Context.Width, o.Context.Height, o.Context.Timeout = h.Viewport.Width, h.Viewport.Height, ms(h.Timeout)
	o.Context.Locale, o.Context.TimeZone = h.Locale, h.TimeZone
	var err error
	o.Actions, err = action.New(action.Options{Subsets: strings.Fields("chat infeas bid coord nav tab"),
		Single: h.Set.Multi != nil && !*h.Set.Multi, Strict: h.Set.Strict, Retry: h.Set.Force})
	return o, err
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
		PNG           []byte `json:"png_base64"`
	} `json:"screenshot"`
	Scale      float64           `json:"scale_factor"`
	Properties obs.Properties    `json:"extra_element_properties"`
	Texts      map[string]string `json:"texts"`
	Raw        json.RawMessage   `json:"raw"` // see answers
}

// answers are the browser's own, behind an observation.
type answers struct {
	Snapshot obs.Snapshot `json:"snapshot"`
	AXTrees  []obs.AXTree `json:"axtrees"`
	Describe []struct {
		Backend int    `json:"backendNodeId"`
		Frame   string `json:"frameId"`
	} `json:"describe_node"`
}

// read reads a recording, observation by observation.
func read(file string, first func(*header) error, each func(*recorded) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	d := json.NewDecoder(bufio.NewReaderSize(z, 1<<20))
	var h header
	if err := d.Decode(&h); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := first(&h); err != nil {
		return err
	}
	for d.More() {
		var o recorded
		if err := d.Decode(&o); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := each(&o); err != nil {
			return err
		}
	}
	return nil
}

// recordings are the files in a folder's subfolders whose names are wanted: name to file.
func (o *options) recordings(folders ...string) (names []string, err error) {
	for _, sub := range folders {
		all, err := filepath.Glob(filepath.Join(o.dir, sub, "*.jsonl.gz"))
		if err != nil {
			return nil, err
		}
		for _, file := range all {
			if name := sub + "/" + strings.TrimSuffix(filepath.Base(file), ".jsonl.gz"); o.only.MatchString(name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no recordings in %s, or none that is wanted", o.dir)
	}
	return names, nil
}

func (o *options) file(name string) string { return filepath.Join(o.dir, name+".jsonl.gz") }
