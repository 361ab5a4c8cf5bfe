// Package recordings reads recordings of the reference in the format described by their README,
// serves the pages that they were made with, and renders the texts that they contain. It is used by
// tests and by scripts/golden, so that both read recordings in the same way.
package recordings

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// A Header is the first line of a recording.
type Header struct {
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

// TaskName returns the page's name in the recordings' README: "nav-errors", "click-pie".
func (h *Header) TaskName() string { return h.Name + strings.TrimPrefix(h.Task, "miniwob.") }

// An Observation is one of the other lines.
type Observation struct {
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
	Raw        json.RawMessage   `json:"raw"` // see View
}

// Answered reports whether the browser's raw answers for the observation were recorded.
func (o *Observation) Answered() bool { return len(o.Raw) > 0 && string(o.Raw) != "null" }

// View computes the input of the observation's texts again from the browser's raw answers.
func (o *Observation) View() (v View, err error) {
	var a struct {
		Snapshot obs.Snapshot `json:"snapshot"`
		AXTrees  []obs.AXTree `json:"axtrees"`
		Describe []struct {
			Backend int    `json:"backendNodeId"`
			Frame   string `json:"frameId"`
		} `json:"describe_node"`
	}
	if err := json.Unmarshal(o.Raw, &a); err != nil {
		return v, err
	}
	a.Snapshot.Clean()
	p, _ := obs.PropertiesOf(&a.Snapshot, o.Scale)
	frames := map[int]string{}
	for _, d := range a.Describe {
		frames[d.Backend] = d.Frame
	}
	return View{DOM: &a.Snapshot, AX: obs.Merge(a.AXTrees, func(backend int) string { return frames[backend] }),
		Properties: p}, nil
}

// Read reads a recording. It calls first for the header and each for each observation.
func Read(file string, first func(*Header) error, each func(*Observation) error) error {
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
	var h Header
	if err := d.Decode(&h); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := first(&h); err != nil {
		return err
	}
	for d.More() {
		var o Observation
		if err := d.Decode(&o); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := each(&o); err != nil {
			return err
		}
	}
	return nil
}

// Files returns the recordings in subfolders of a folder, by name: "recordings/nav".
func Files(dir string, folders ...string) (map[string]string, error) {
	all := map[string]string{}
	for _, sub := range folders {
		files, err := filepath.Glob(filepath.Join(dir, sub, "*.jsonl.gz"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			all[sub+"/"+strings.TrimSuffix(filepath.Base(file), ".jsonl.gz")] = file
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no recordings in %s", dir)
	}
	return all, nil
}
