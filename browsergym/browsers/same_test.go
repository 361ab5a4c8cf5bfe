package browsers_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/obs"
)

// id is how a browser numbers what a page has made of data.
var id = regexp.MustCompile(`blob:[^ "]*[0-9a-f-]{36}`)

func words(text string, err error) string {
	if err != nil {
		return err.Error()
	}
	return text
}

// pixels counts how many pixels of two pictures differ, and by how many levels at most.
func pixels(t *testing.T, one, other []byte) (n, most int) {
	t.Helper()
	a, err := png.Decode(bytes.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	b, err := png.Decode(bytes.NewReader(other))
	if err != nil {
		t.Fatal(err)
	}
	if a.Bounds() != b.Bounds() {
		t.Fatalf("pictures of %v and %v", a.Bounds(), b.Bounds())
	}
	for y := a.Bounds().Min.Y; y < a.Bounds().Max.Y; y++ {
		for x := a.Bounds().Min.X; x < a.Bounds().Max.X; x++ {
			p, q := color.NRGBAModel.Convert(a.At(x, y)).(color.NRGBA),
				color.NRGBAModel.Convert(b.At(x, y)).(color.NRGBA)
			level := 0
			for _, d := range [4]int{int(p.R) - int(q.R), int(p.G) - int(q.G), int(p.B) - int(q.B),
				int(p.A) - int(q.A)} {
				level = max(level, d, -d)
			}
			if level > 0 {
				n++
			}
			most = max(most, level)
		}
	}
	return n, most
}

// What an agent sees is the same in a pool's browser as in one that nothing is around.
func TestTheSameIsSeen(t *testing.T) {
	p := newPool(t, browsers.Options{})
	dir := filepath.Join(os.Getenv("EVALRUN_GOLDEN"), "pages")
	if os.Getenv("EVALRUN_GOLDEN") == "" {
		dir = t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "small.html"), []byte(small), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := httptest.NewServer(http.FileServerFS(os.DirFS(dir)))
	defer s.Close()
	bare, err := cdp.Launch(t.Context(), cdp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	pages, err := filepath.Glob(filepath.Join(dir, "*.html"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	pooled := p.For(browsers.AccessOptions{Hosts: []string{s.Listener.Addr().String()}})
	for _, page := range pages {
		name := filepath.Base(page)
		if slices.Contains([]string{"big.html", "bid-used.html", "errors.html", "graphics.html"}, name) {
			// as the others, but long; an error by design; something that moves; a film's controls,
			// which come and go
			continue
		}
		if html, err := os.ReadFile(page); err != nil || bytes.Contains(html, []byte(":8932")) {
			continue // shows what a bare browser may reach on this machine, and one of a pool may not
		}
		// Some pages change by themselves, and on a busy machine a moment makes a difference: what differs
		// each time counts.
		var differ []string
		for range 5 {
			if differ = differences(t, name, look(t, bare, s.URL+"/"+name),
				look(t, pooled, s.URL+"/"+name)); differ == nil {
				break
			}
		}
		for _, d := range differ {
			t.Error(d)
		}
	}
}

// look is what an agent sees of a page at first.
func look(t *testing.T, opener browsergym.Opener, url string) *browsergym.Observation {
	t.Helper()
	e, err := browsergym.New(browsergym.Options{Browser: opener, Task: func(uint32) (browsergym.Task, error) {
		return &browsergym.Openended{URL: url, Goal: browsergym.Text("look")}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	o, _, err := e.Reset(t.Context(), 1)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return o
}

// differences says what of two observations of a page differs.
func differences(t *testing.T, name string, one, other *browsergym.Observation) (out []string) {
	t.Helper()
	for what, get := range map[string]func(*browsergym.Observation) any{
		"screenshot": func(o *browsergym.Observation) any { return o.Screenshot },
		"DOM": func(o *browsergym.Observation) any {
			return words(obs.DOMText(o.DOM, o.Properties, obs.Options{}))
		},
		"AX": func(o *browsergym.Observation) any {
			return words(obs.AXText(o.AX, o.Properties, obs.DefaultAX()))
		},
		"properties": func(o *browsergym.Observation) any { return o.Properties },
		"focus":      func(o *browsergym.Observation) any { return o.Focused },
		"titles":     func(o *browsergym.Observation) any { return o.Titles },
	} {
		a, _ := json.Marshal(get(one))
		b, _ := json.Marshal(get(other))
		a, b = id.ReplaceAll(a, []byte("ID")), id.ReplaceAll(b, []byte("ID"))
		switch {
		case bytes.Equal(a, b):
		case what == "screenshot":
			// One browser, too, rounds a few pixels otherwise now and then: docs/fidelity.md, cause 2.
			if n, most := pixels(t, one.Screenshot, other.Screenshot); n > 16 || most > 2 {
				out = append(out, fmt.Sprintf("%s: %d pixels of the screenshot differ, by up to %d levels", name, n,
					most))
			}
		default:
			i := 0
			for i < min(len(a), len(b)) && a[i] == b[i] {
				i++
			}
			out = append(out, fmt.Sprintf("%s: %s differs: %d and %d bytes, …%.200s and …%.200s",
				name, what, len(a), len(b), a[i:], b[i:]))
		}
	}
	return out
}
