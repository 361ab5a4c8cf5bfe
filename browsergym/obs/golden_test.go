package obs_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/obs"
)

// goldens is the folder of recordings of the reference, or skips the test.
func goldens(t testing.TB) string {
	dir := os.Getenv("EVALRUN_GOLDEN")
	if dir == "" {
		t.Skip("recordings of the reference are not there; name their folder by EVALRUN_GOLDEN")
	}
	return dir
}

type options struct {
	Visible        bool      `json:"with_visible"`
	Clickable      bool      `json:"with_clickable"`
	Marked         bool      `json:"with_som"`
	Center         bool      `json:"with_center_coords"`
	Box            bool      `json:"with_bounding_box_coords"`
	Decimals       int       `json:"coord_decimals"`
	OnlyVisible    bool      `json:"filter_visible_only"`
	OnlyWithBid    bool      `json:"filter_with_bid_only"`
	OnlyMarked     bool      `json:"filter_som_only"`
	HideInvisible  bool      `json:"hide_bid_if_invisible"`
	HideBids       bool      `json:"hide_all_bids"`
	SkipGeneric    *bool     `json:"skip_generic"`
	Redundant      *bool     `json:"remove_redundant_static_text"`
	HideChildren   bool      `json:"hide_all_children"`
	IgnoredRoles   *[]string `json:"ignored_roles"`
	IgnoredPropery *[]string `json:"ignored_properties"`
}

func (o options) shared() obs.Options {
	return obs.Options{Visible: o.Visible, Clickable: o.Clickable, Marked: o.Marked, Center: o.Center, Box: o.Box, Decimals: o.Decimals,
		OnlyVisible: o.OnlyVisible, OnlyWithBid: o.OnlyWithBid, OnlyMarked: o.OnlyMarked, HideBidIfInvisible: o.HideInvisible, HideBids: o.HideBids}
}

func (o options) ax() obs.AXOptions {
	x := obs.DefaultAX()
	x.Options = o.shared()
	if o.SkipGeneric != nil {
		x.SkipGeneric = *o.SkipGeneric
	}
	if o.Redundant != nil {
		x.SkipRedundantText = *o.Redundant
	}
	x.HideChildren = o.HideChildren
	if o.IgnoredRoles != nil {
		x.IgnoredRoles = *o.IgnoredRoles
	}
	if o.IgnoredPropery != nil {
		x.IgnoredProperties = *o.IgnoredPropery
	}
	return x
}

type observation struct {
	Kind       string            `json:"kind"`
	Index      int               `json:"index"`
	Scale      float64           `json:"scale_factor"`
	Texts      map[string]string `json:"texts"`
	Properties json.RawMessage   `json:"extra_element_properties"`
	Raw        *struct {
		Snapshot obs.Snapshot `json:"snapshot"`
		AXTrees  []obs.AXTree `json:"axtrees"`
		Describe []struct {
			Backend int    `json:"backendNodeId"`
			Frame   string `json:"frameId"`
		} `json:"describe_node"`
	} `json:"raw"`
}

// TestGoldenTexts renders every recorded observation again, from the browser's own answers, and compares with what the reference printed.
func TestGoldenTexts(t *testing.T) {
	dir := goldens(t)
	var sets struct {
		AX    map[string]options `json:"axtree"`
		DOM   map[string]options `json:"dom"`
		Prune map[string]string  `json:"prune"`
	}
	raw, err := os.ReadFile(filepath.Join(dir, "options.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &sets); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, p := range []string{"miniwob", "recordings", "as-is"} {
		more, _ := filepath.Glob(filepath.Join(dir, p, "*.jsonl.gz"))
		files = append(files, more...)
	}
	if len(files) == 0 {
		t.Fatalf("no recordings in %s", dir)
	}
	good, bad := map[string]int{}, map[string]int{}
	shown := 0
	diff := func(file string, o *observation, name, got, want string) {
		if got == want {
			good[name]++
			return
		}
		bad[name]++
		if shown++; shown <= 10 {
			t.Errorf("%s observation %d, %s:\n%s", file, o.Index, name, firstDifference(got, want))
		}
	}
	pages, all := 0, 0
	for _, f := range files {
		each(t, f, func(o *observation) {
			if len(o.Texts) == 0 {
				return
			}
			all++
			file := filepath.Base(f)
			for name, of := range sets.Prune {
				if want, ok := o.Texts[name]; ok {
					if src, ok := o.Texts[of]; ok {
						diff(file, o, name, obs.PruneHTML(src), want)
					}
				}
			}
			if o.Raw == nil {
				return
			}
			pages++
			s := &o.Raw.Snapshot
			s.Clean()
			p, _ := obs.PropertiesOf(s, o.Scale)
			got, _ := json.Marshal(p)
			if !same(got, o.Properties) || !sameOrder(p, o.Properties) {
				bad["properties"]++
				if shown++; shown <= 10 {
					t.Errorf("%s observation %d: properties\n%s", file, o.Index, firstDifference(string(got), string(o.Properties)))
				}
			} else {
				good["properties"]++
			}
			frames := map[int]string{}
			for _, d := range o.Raw.Describe {
				frames[d.Backend] = d.Frame
			}
			tree := obs.Merge(o.Raw.AXTrees, func(b int) string { return frames[b] })
			for name, want := range o.Texts {
				if opt, ok := sets.AX[name]; ok {
					got, err := obs.AXText(tree, p, opt.ax())
					if err != nil {
						t.Fatal(err)
					}
					diff(file, o, name, got, want)
				} else if opt, ok := sets.DOM[name]; ok {
					got, err := obs.DOMText(s, p, opt.shared())
					if err != nil {
						t.Fatal(err)
					}
					diff(file, o, name, got, want)
				} else if _, ok := sets.Prune[name]; !ok {
					t.Fatalf("%s: what is the text %q?", f, name)
				}
			}
		})
	}
	var names []string
	for n := range good {
		names = append(names, n)
	}
	for n := range bad {
		if good[n] == 0 {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	g, b := 0, 0
	for _, n := range names {
		g, b = g+good[n], b+bad[n]
		if bad[n] > 0 {
			t.Logf("%-32s %6d equal %6d not", n, good[n], bad[n])
		}
	}
	t.Logf("%d observations, %d of them with the browser's answers; %d texts equal, %d not", all, pages, g, b)
}

func same(a, b []byte) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

// sameOrder compares the elements' order, which the set of marks on a screenshot shows.
func sameOrder(got *obs.Properties, raw []byte) bool {
	var want obs.Properties
	return json.Unmarshal(raw, &want) == nil && slices.Equal(got.Bids(), want.Bids())
}

func each(t testing.TB, name string, f func(*observation)) {
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReaderSize(z, 1<<20)
	for n := 0; ; n++ {
		line, err := r.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 && n > 0 {
			var o observation
			if err := json.Unmarshal(line, &o); err != nil {
				t.Fatalf("%s:%d: %v", name, n+1, err)
			}
			f(&o)
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		a, b := "(end)", "(end)"
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			if len(a) > 300 {
				k := 0
				for k < len(a) && k < len(b) && a[k] == b[k] {
					k++
				}
				a, b = a[max(0, k-100):min(len(a), k+200)], b[min(len(b), max(0, k-100)):min(len(b), k+200)]
			}
			return fmt.Sprintf("line %d\n got  %q\n want %q", i+1, a, b)
		}
	}
	return "equal"
}
