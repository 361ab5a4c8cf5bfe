package webarena

import (
	"context"
	"encoding/json"
	"image"
	"image/color"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// fake is a browser whose pages are texts, and answer expressions that hold a given part.
type fake struct {
	last  fakePage
	pages map[string]fakePage
	went  []string
}

type fakePage struct {
	url, html string
	answers   map[string]string // part of an expression → JSON; "throw" throws
}

func (f *fake) Active() Page { return f.last }

func (f *fake) Visit(_ context.Context, address string, lend func(Page) error) error {
	f.went = append(f.went, address)
	p := f.pages[address]
	p.url = address
	return lend(p)
}

func (p fakePage) URL() string                             { return p.url }
func (p fakePage) Content(context.Context) (string, error) { return p.html, nil }

func (p fakePage) Eval(_ context.Context, expression string) (json.RawMessage, error) {
	for part, v := range p.answers {
		if strings.Contains(expression, part) {
			if v == "throw" {
				break
			}
			return json.RawMessage(v), nil
		}
	}
	return nil, &ScriptError{"TypeError: Cannot read properties of null"}
}

// fakeJudge says what it is told to, and keeps what it was asked.
type fakeJudge struct {
	says  string
	asked []string
}

func (j *fakeJudge) Ask(_ context.Context, _, user string) (string, error) {
	j.asked = append(j.asked, user)
	return j.says, nil
}

// sees answers every question about every picture with itself.
type sees string

func (s sees) Ask(_ context.Context, pictures []image.Image, _ string) ([]string, error) {
	out := make([]string, len(pictures))
	for i := range out {
		out[i] = string(s)
	}
	return out, nil
}

// shop is a shop of one order and one product, with pictures.
func shop(t *testing.T, pictures map[string][]byte) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := pictures[r.URL.Path]; ok {
			w.Write(p)
			return
		}
		if r.URL.Path == "/rest/default/V1/integration/admin/token" && r.Method == "POST" {
			w.Write([]byte(`"the-token"`))
			return
		}
		if r.Header.Get("Authorization") != "Bearer the-token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/rest/V1/orders":
			if r.URL.Query().Get("searchCriteria[pageSize]") != "1" ||
				r.URL.Query().Get("searchCriteria[sortOrders][0][direction]") != "DESC" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.Write([]byte(`{"items":[{"increment_id":"000000170"}]}`))
		case "/rest/V1/products/B09BCM56J7/reviews":
			w.Write([]byte(`[{"nickname":"old","ratings":[{"percent":20}]},{"nickname":"cupcakecupcake","detail":"Sweet","ratings":[{"rating_name":"Rating","percent":100}]}]`))
		case "/rest/V1/products/NONE/reviews":
			w.Write([]byte(`[]`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func painting(w, h, k int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetRGBA(x, y, color.RGBA{uint8(x*5 + y*3*k), uint8(x*y/7 + k*11), uint8(((x / 4) ^ (y / 3)) * 9), 255})
		}
	}
	return img
}
