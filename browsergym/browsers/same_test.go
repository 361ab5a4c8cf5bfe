package browsers_test

import (
	"bytes"
	"encoding/json"
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
		var seen [2]*browsergym.Observation
		for i, opener := range []browsergym.Opener{bare,
			p.For(browsers.Wish{Hosts: []string{s.Listener.Addr().String()}})} {
			e, err := browsergym.New(browsergym.Options{Browser: opener, Task: func(uint32) (browsergym.Task, error) {
				return &browsergym.Openended{URL: s.URL + "/" + name, Goal: browsergym.Text("look")}, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if seen[i], _, err = e.Reset(t.Context(), 1); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
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
			a, _ := json.Marshal(get(seen[0]))
			b, _ := json.Marshal(get(seen[1]))
			a, b = id.ReplaceAll(a, []byte("ID")), id.ReplaceAll(b, []byte("ID"))
			if !bytes.Equal(a, b) {
				i := 0
				for i < min(len(a), len(b)) && a[i] == b[i] {
					i++
				}
				t.Errorf("%s: %s differs: %d and %d bytes, …%.200s and …%.200s", name, what, len(a), len(b), a[i:],
					b[i:])
			}
		}
	}
}
