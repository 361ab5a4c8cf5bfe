package browsergym_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// A tally counts, field by field, what is equal to the recordings.
type tally struct {
	mu   sync.Mutex
	rows map[string]*row
	told map[string]int
}

type row struct{ n, equal, known int }

// A difference is one field of one observation.
type difference struct{ field, got, want string }

// add counts a field, and returns whether it differs for no reason that is known.
func (c *tally) add(t *testing.T, h *header, o *recorded, d difference) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rows[d.field]
	if r == nil {
		r = &row{}
		c.rows[d.field] = r
	}
	r.n++
	if d.got == d.want {
		r.equal++
		return false
	}
	cause := unstable(h, o, d)
	if cause != "" {
		r.known++
	}
	key := t.Name() + d.field + cause
	if c.told[key]++; c.told[key] <= 2 {
		t.Logf("%d %s: %s [%s]\n%s", o.Index, o.Action, d.field, cause, firstDifference(d.got, d.want))
	}
	return cause == ""
}

// unstable is the row of the recordings' README by which a field differs between two runs of the reference, too; "" is none.
func unstable(h *header, o *recorded, d difference) string {
	name, field := h.Name+strings.TrimPrefix(h.Task, "miniwob."), d.field
	text := strings.HasPrefix(field, "text ")
	switch {
	case field == "screenshot":
		return "carets, focus rings, fades"
	case field == "error's log":
		return "number of retries"
	case strings.HasPrefix(name, "click-pie") && (text && field != "text ax" || field == "bbox"):
		return "drawing in motion"
	case name == "terminal":
		return "blinking cursor"
	case name == "stock-market":
		return "moves with the clock"
	case name == "form-sequence-3" && text && field != "text ax":
		return "order of two class names"
	case strings.HasPrefix(name, "graphics") && field == "text ax":
		return "controls of a video"
	case strings.HasPrefix(name, "errors") && moving.ReplaceAllString(d.got, "") == moving.ReplaceAllString(d.want, ""):
		return "moving button"
	case (name == "nav-errors" || name == "errors-force") && o.Index > 0:
		return "timing after a slow navigation"
	}
	return ""
}

// moving is what depends on where the moving button of a page is.
var moving = regexp.MustCompile(`(?m)(\[27\]|bid="27")[^>\n]*|^27 .*`)

// TestGoldenReplay plays all recordings and compares every field of every observation. A table in the log says what is equal; bids and goals have
// to be. EVALRUN_TEST_EPISODES is a pattern of names (recordings/nav, miniwob/click-test.1), EVALRUN_TEST_PACE=reference the slow pace, and
// EVALRUN_TEST_MINIWOB the folder html of MiniWoB++.
func TestGoldenReplay(t *testing.T) {
	dir := os.Getenv("EVALRUN_GOLDEN")
	if dir == "" {
		t.Skip("recordings of the reference are not there; name their folder by EVALRUN_GOLDEN")
	}
	if testing.Short() {
		t.Skip("takes minutes")
	}
	b := launch(t)
	s, sets := newSite(t, dir), readSets(t, dir)
	names, err := regexp.Compile(os.Getenv("EVALRUN_TEST_EPISODES"))
	if err != nil {
		t.Fatal(err)
	}
	upload(t)
	pace := browsergym.Fast
	if os.Getenv("EVALRUN_TEST_PACE") == "reference" {
		pace = browsergym.Reference
	}
	c := &tally{rows: map[string]*row{}, told: map[string]int{}}
	t.Run("all", func(t *testing.T) {
		for _, sub := range []string{"recordings", "miniwob"} {
			if sub == "miniwob" && s.miniwob == "" {
				t.Log("MiniWoB++'s pages are not there; name their folder by EVALRUN_TEST_MINIWOB")
				continue
			}
			all, _ := filepath.Glob(filepath.Join(dir, sub, "*.jsonl.gz"))
			for _, file := range all {
				name := sub + "/" + strings.TrimSuffix(filepath.Base(file), ".jsonl.gz")
				if names.MatchString(name) {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						h, all := readRecording(t, file)
						o := h.options(t)
						o.Browser, o.Pace = b, pace
						o.Context.Downloads = t.TempDir()
						replay(t, c, s, &sets, &h, all, o)
					})
				}
			}
		}
	})
	total := row{}
	t.Logf("%-20s %7s %7s %7s %7s", "field", "n", "equal", "known", "share")
	for _, f := range slices.Sorted(maps.Keys(c.rows)) {
		r := c.rows[f]
		t.Logf("%-20s %7d %7d %7d %6.2f%%", f, r.n, r.equal, r.known, 100*float64(r.equal)/float64(r.n))
		total.n, total.equal, total.known = total.n+r.n, total.equal+r.equal, total.known+r.known
	}
	t.Logf("%-20s %7d %7d %7d %6.2f%%", "all", total.n, total.equal, total.known, 100*float64(total.equal)/float64(max(total.n, 1)))
}

// replay plays one recording.
func replay(t *testing.T, c *tally, s *site, sets *textSets, h *header, all []recorded, o browsergym.Options) {
	e := play(t, o, func(seed uint32) browsergym.Task {
		if name, ok := strings.CutPrefix(h.Task, "miniwob."); ok {
			return &browsergym.MiniWoB{Name: name, Base: s.ours(h.Base), Seed: seed, Limit: ms(h.Limit)}
		}
		return &browsergym.Openended{URL: s.ours(h.Start), Goal: all[0].GoalObject}
	})
	for i := range all {
		want := &all[i]
		var r *browsergym.Result
		var err error
		if i == 0 {
			r = &browsergym.Result{}
			r.Observation, r.Info, err = e.Reset(t.Context(), h.Seed)
		} else {
			r, err = e.Step(t.Context(), s.ours(want.Action))
		}
		if want.Error != "" || err != nil {
			text := fmt.Sprint(err)
			first, _, _ := strings.Cut(want.Error, "\n")
			if want.Error != "" && strings.Contains(text, first) {
				text = first
			}
			if c.add(t, h, want, difference{"failure", text, first}) {
				t.Errorf("%d %s: %v, recorded %q", want.Index, want.Action, err, first)
			}
			return
		}
		for _, d := range compare(t, s, sets, r, want, h) {
			if c.add(t, h, want, d) && (d.field == "bids" || d.field == "goal" || d.field == "goal_object") {
				t.Errorf("%d %s: %s differs", want.Index, want.Action, d.field)
			}
		}
	}
}

var blob = regexp.MustCompile(`blob:[^'" ]*`)

// compare sets every field beside the recorded one.
func compare(t *testing.T, s *site, sets *textSets, r *browsergym.Result, want *recorded, h *header) (all []difference) {
	o := r.Observation
	say := func(field string, got, want any) {
		g, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		w, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, difference{field, blob.ReplaceAllString(s.theirs(string(g)), "blob:"), blob.ReplaceAllString(string(w), "blob:")})
	}
	if o.GoalObject != nil && len(want.GoalObject) == 0 {
		want.GoalObject = []browsergym.Item{}
	}
	beforeWarning := func(s string) string { s, _, _ = strings.Cut(s, "WARNING: "); return s } // its words are our own
	say("goal", beforeWarning(o.Goal), beforeWarning(want.Goal))
	say("goal_object", o.GoalObject, want.GoalObject)
	chat := slices.Clone(o.Chat)
	for i := range chat {
		chat[i].Time = 0
	}
	say("chat", chat, want.Chat)
	say("urls", o.URLs, want.URLs)
	say("titles", o.Titles, want.Titles)
	say("active", o.Active, want.Active)
	say("url", o.URL, want.URL)
	say("focused", o.Focused, want.Focused)
	say("last_action", o.LastAction, want.LastAction)
	got1, got2, _ := strings.Cut(o.LastError, "\n")
	want1, want2, _ := strings.Cut(want.LastError, "\n")
	if strings.HasPrefix(want1, "SyntaxError: keyword argument repeated") { // its line is one of generated code
		got1, _, _ = strings.Cut(got1, ", line")
		want1, _, _ = strings.Cut(want1, ", line")
	}
	say("error", got1, want1)
	if want2 != "" || got2 != "" {
		say("error's log", got2, want2)
	}
	if want.Kind == "step" {
		say("reward", []any{r.Reward, r.Terminated, r.Truncated, r.Info.Timeout}, []any{want.Reward, want.Terminated, want.Truncated, want.Timeout})
	}
	got, wanted := maps.Clone(r.Info.Task), maps.Clone(want.TaskInfo)
	if g, ok := got["REWARD_GLOBAL"].(float64); ok && g > 0 { // of success: it counts the time
		if w, ok := wanted["REWARD_GLOBAL"].(float64); ok && w > 0 {
			got["REWARD_GLOBAL"] = w
		}
	}
	say("task_info", got, wanted)
	say("bids", o.Properties.Bids(), want.Properties.Bids())
	for _, field := range []struct {
		name string
		of   func(obs.Property) any
	}{
		{"visibility", func(e obs.Property) any { return e.Visibility }}, {"bbox", func(e obs.Property) any { return e.Box }},
		{"clickable", func(e obs.Property) any { return e.Clickable }}, {"set_of_marks", func(e obs.Property) any { return e.Marked }},
	} {
		values := func(p *obs.Properties) string {
			var b strings.Builder
			for _, bid := range p.Bids() {
				x, _ := p.Get(bid)
				v, _ := json.Marshal(field.of(x))
				fmt.Fprintf(&b, "%s %s\n", bid, v)
			}
			return b.String()
		}
		all = append(all, difference{field.name, values(o.Properties), values(&want.Properties)})
	}
	img, err := png.Decode(bytes.NewReader(o.Screenshot))
	if err != nil {
		t.Fatal(err)
	}
	w, hh := img.Bounds().Dx(), img.Bounds().Dy()
	rgb := make([]byte, 0, w*hh*3)
	for y := range hh {
		for x := range w {
			r, g, b, _ := img.At(x, y).RGBA()
			rgb = append(rgb, byte(r>>8), byte(g>>8), byte(b>>8))
		}
	}
	sum := sha256.Sum256(rgb)
	say("screenshot size", []int{w, hh}, []int{want.Screenshot.Width, want.Screenshot.Height})
	say("screenshot", hex.EncodeToString(sum[:]), want.Screenshot.Sum)
	for name, text := range want.Texts {
		got, ok, err := sets.render(name, o)
		if err != nil || !ok {
			t.Fatalf("the text %s: %v", name, err)
		}
		kind, _, _ := strings.Cut(name, "_")
		all = append(all, difference{"text " + kind, blob.ReplaceAllString(s.theirs(got), "blob:"), blob.ReplaceAllString(text, "blob:")})
	}
	return all
}

func firstDifference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	from := max(0, i-80)
	return fmt.Sprintf("at byte %d\n got  %q\n want %q", i, got[from:min(len(got), i+120)], want[from:min(len(want), i+120)])
}

// upload makes the files that recorded uploads use.
func upload(t *testing.T) {
	const dir = "/tmp/golden-upload"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"a.txt": "file a\n", "b.txt": "file b, longer\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
