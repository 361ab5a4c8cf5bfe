package cdp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/recordings"
	"github.com/evalrun/evalrun/browsergym/recordings/recordingstest"
)

// newSite serves the recordings' pages.
func newSite(t testing.TB, dir string) *recordings.Site {
	s, err := recordings.NewSite(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// recording reads a recording's header and observations.
func recording(t testing.TB, file string) (h *recordings.Header, all []*recordings.Observation) {
	err := recordings.Read(file, func(x *recordings.Header) error {
		h = x
		return nil
	}, func(o *recordings.Observation) error {
		all = append(all, o)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return h, all
}

func launch(t testing.TB, args ...string) *cdp.Browser {
	t.Helper()
	needBrowser(t)
	b, err := cdp.Launch(t.Context(), cdp.Options{Dir: t.TempDir(), Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func contextOptions(h *recordings.Header) cdp.ContextOptions {
	return cdp.ContextOptions{Width: h.Viewport.Width, Height: h.Viewport.Height, Locale: h.Locale,
		TimeZone: h.TimeZone, Timeout: time.Duration(h.Timeout * float64(time.Millisecond))}
}

// compare says what of an observation differs from the recorded one.
func compare(s *recordings.Site, o *cdp.Observation, want *recordings.Observation) (diffs []string) {
	got, err := json.Marshal(o.Properties)
	if err != nil {
		return []string{err.Error()}
	}
	wanted, err := json.Marshal(&want.Properties)
	if err != nil {
		return []string{err.Error()}
	}
	if string(got) != string(wanted) {
		diffs = append(diffs, "properties: "+firstDifference(string(got), string(wanted)))
	}
	if o.Focused != want.Focused {
		diffs = append(diffs, fmt.Sprintf("focused %q, recorded %q", o.Focused, want.Focused))
	}
	if text, ok := want.Texts["ax_default"]; ok {
		text = s.Theirs(text)
		x := obs.DefaultAX()
		got, err := obs.AXText(o.AX, nil, x)
		if err != nil {
			return append(diffs, err.Error())
		}
		if got = s.Theirs(got); told(got) != told(text) {
			diffs = append(diffs, "ax: "+firstDifference(got, text))
		}
	}
	if text, ok := want.Texts["dom_default"]; ok {
		text = s.Theirs(text)
		got, err := obs.DOMText(o.Snapshot, nil, obs.Options{})
		if err != nil {
			return append(diffs, err.Error())
		}
		if got = s.Theirs(got); told(got) != told(text) {
			diffs = append(diffs, "dom: "+firstDifference(got, text))
		}
	}
	return diffs
}

// told leaves out where a page's log has the line of a select event: it is sent with the next
// frame, which may come before or after the next key.
func told(text string) string {
	return strings.NewReplacer("select in\n", "",
		"\tStaticText 'select in'\n\t\tInlineTextBox 'select in'\n\t\tInlineTextBox ''\n", "").Replace(text)
}

// unstable reports whether a difference is one that the reference has with itself.
func unstable(name, diff string) bool {
	switch {
	case strings.Contains(name, "errors"): // a button that moves
		return strings.HasPrefix(diff, "properties") && strings.Contains(diff, `"27\":`)
	case strings.Contains(name, "graphics"): // controls of a video that come and go
		return strings.HasPrefix(diff, "ax")
	}
	return false
}

func firstDifference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	from := max(0, i-80)
	return fmt.Sprintf("at byte %d\n got  %q\n want %q", i, got[from:min(len(got), i+120)],
		want[from:min(len(want), i+120)])
}

// TestGoldenFirstObservations opens the recorded pages and compares what is seen first.
func TestGoldenFirstObservations(t *testing.T) {
	dir := recordingstest.Dir(t)
	b := launch(t)
	s := newSite(t, dir)
	files, _ := filepath.Glob(filepath.Join(dir, "recordings", "*.jsonl.gz"))
	if len(files) == 0 {
		t.Fatal("no recordings")
	}
	done := map[string]bool{}
	for _, file := range files {
		h, all := recording(t, file)
		key := fmt.Sprint(h.Start, h.Viewport, h.Tags, h.Locale, h.TimeZone)
		if done[key] {
			continue
		}
		done[key] = true
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl.gz"), func(t *testing.T) {
			t.Parallel()
			c, err := b.NewContext(t.Context(), contextOptions(h))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close(context.Background()) })
			p, err := c.NewPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Goto(t.Context(), s.Ours(h.Start)); err != nil {
				t.Fatal(err)
			}
			// elements that focus themselves do so, and are scrolled to, in the first frame
			if err := p.WaitIdle(t.Context(), time.Second, true, nil); err != nil {
				t.Fatal(err)
			}
			o, err := p.Observe(t.Context(), cdp.ObserveOptions{AllTags: h.Tags == "all"})
			if all[0].Error != "" {
				want, _, _ := strings.Cut(all[0].Error, "\n")
				if got := fmt.Sprint(err); !strings.HasPrefix(got, want) {
					t.Errorf("error %q, recorded %q", got, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range compare(s, o, all[0]) {
				if unstable(t.Name(), d) {
					t.Log("known to be unstable: " + d)
					continue
				}
				t.Error(d)
			}
			for _, w := range o.Warnings {
				t.Log(w)
			}
		})
	}
}
