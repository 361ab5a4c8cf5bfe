package cdp_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// site serves the recordings' pages as their README says, on two ports of its own.
type site struct {
	dir          string
	first, other string // host and port
}

func newSite(t testing.TB, dir string) *site {
	s := &site{dir: dir}
	for _, at := range []*string{&s.first, &s.other} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
		srv.Start()
		t.Cleanup(func() {
			srv.CloseClientConnections()
			srv.Close()
		})
		*at = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	return s
}

// ours puts our ports in the place of the recorded ones.
func (s *site) ours(text string) string {
	return strings.NewReplacer(":8931", ":"+s.first, ":8932", ":"+s.other).Replace(text)
}

// theirs is the other way round.
func (s *site) theirs(text string) string {
	return blob.ReplaceAllString(strings.NewReplacer(":"+s.first, ":8931", ":"+s.other, ":8932").Replace(text), "$1")
}

// blob is an address that is random.
var blob = regexp.MustCompile(`(blob:http://127.0.0.1:8931/)[0-9a-f-]+`)

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	name := path.Base(r.URL.Path)
	switch {
	case len(parts) >= 3 && parts[0] == "slow":
		ms, _ := strconv.Atoi(parts[1])
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	case len(parts) >= 2 && parts[0] == "redirect":
		http.Redirect(w, r, "/"+name, http.StatusFound)
		return
	case len(parts) >= 2 && parts[0] == "status":
		code, _ := strconv.Atoi(parts[1])
		h.Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		if code != http.StatusNoContent {
			fmt.Fprintf(w, "<title>status</title>status %d", code)
		}
		return
	case len(parts) >= 2 && parts[0] == "download":
		h.Set("Content-Type", "text/plain")
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
		io.WriteString(w, "downloaded text\n")
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	raw, err := os.ReadFile(filepath.Join(s.dir, "pages", name))
	if err != nil {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "<title>404</title>not found")
		return
	}
	io.WriteString(w, s.ours(string(raw)))
}

type header struct {
	Name     string                      `json:"name"`
	Start    string                      `json:"start_url"`
	Viewport struct{ Width, Height int } `json:"viewport"`
	Tags     string                      `json:"tags_to_mark"`
	Locale   string                      `json:"locale"`
	TimeZone string                      `json:"timezone_id"`
	Timeout  int                         `json:"timeout"`
	Set      struct {
		Force bool `json:"retry_with_force"`
	} `json:"action_set"`
}

type recorded struct {
	Kind       string            `json:"kind"`
	Index      int               `json:"index"`
	Action     string            `json:"action"`
	Error      string            `json:"error"`
	LastError  string            `json:"last_action_error"`
	URLs       []string          `json:"open_pages_urls"`
	Titles     []string          `json:"open_pages_titles"`
	Active     int               `json:"active_page_index"`
	Focused    string            `json:"focused_element_bid"`
	Properties json.RawMessage   `json:"extra_element_properties"`
	Texts      map[string]string `json:"texts"`
}

// recording reads a recording's header and observations.
func recording(t testing.TB, file string) (header, []recorded) {
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
	var h header
	if err := d.Decode(&h); err != nil {
		t.Fatal(err)
	}
	var all []recorded
	for d.More() {
		var o recorded
		if err := d.Decode(&o); err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return h, all
}

func goldens(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("EVALRUN_GOLDEN")
	if dir == "" {
		t.Skip("recordings of the reference are not there; name their folder by EVALRUN_GOLDEN")
	}
	return dir
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

func (h *header) options() cdp.ContextOptions {
	return cdp.ContextOptions{Width: h.Viewport.Width, Height: h.Viewport.Height, Locale: h.Locale, TimeZone: h.TimeZone, Timeout: time.Duration(h.Timeout) * time.Millisecond}
}

// compare says what of an observation differs from the recorded one.
func compare(s *site, o *cdp.Observation, want *recorded) (diffs []string) {
	got, err := json.Marshal(o.Properties)
	if err != nil {
		return []string{err.Error()}
	}
	var p obs.Properties
	if err := json.Unmarshal(want.Properties, &p); err != nil {
		return []string{err.Error()}
	}
	wanted, _ := json.Marshal(&p)
	if string(got) != string(wanted) {
		diffs = append(diffs, "properties: "+firstDifference(string(got), string(wanted)))
	}
	if o.Focused != want.Focused {
		diffs = append(diffs, fmt.Sprintf("focused %q, recorded %q", o.Focused, want.Focused))
	}
	if text, ok := want.Texts["ax_default"]; ok {
		text = s.theirs(text)
		x := obs.DefaultAX()
		got, err := obs.AXText(o.AX, nil, x)
		if err != nil {
			return append(diffs, err.Error())
		}
		if got = s.theirs(got); told(got) != told(text) {
			diffs = append(diffs, "ax: "+firstDifference(got, text))
		}
	}
	if text, ok := want.Texts["dom_default"]; ok {
		text = s.theirs(text)
		got, err := obs.DOMText(o.Snapshot, nil, obs.Options{})
		if err != nil {
			return append(diffs, err.Error())
		}
		if got = s.theirs(got); told(got) != told(text) {
			diffs = append(diffs, "dom: "+firstDifference(got, text))
		}
	}
	return diffs
}

// told leaves out where a page's log has the line of a select event: it is sent with the next frame, which may come before or after the next key.
func told(text string) string {
	return strings.NewReplacer("select in\n", "", "\tStaticText 'select in'\n\t\tInlineTextBox 'select in'\n\t\tInlineTextBox ''\n", "").Replace(text)
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
	return fmt.Sprintf("at byte %d\n got  %q\n want %q", i, got[from:min(len(got), i+120)], want[from:min(len(want), i+120)])
}

// TestGoldenFirstObservations opens the recorded pages and compares what is seen first.
func TestGoldenFirstObservations(t *testing.T) {
	dir := goldens(t)
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
			c, err := b.NewContext(t.Context(), h.options())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close(context.Background()) })
			p, err := c.NewPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Goto(t.Context(), s.ours(h.Start)); err != nil {
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
			for _, d := range compare(s, o, &all[0]) {
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
