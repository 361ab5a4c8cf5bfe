package webarena

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// A published case: which configuration, what the agent did, and what came out of it. Pages that
// the published tests went to are replaced by fakes that hold the same in the same places.
type publishedCase struct {
	name, file string
	d          Dialect
	sees       string
	types      []string // graded by these alone; nil: by all that the file names
	said       string
	last       fakePage
	pages      map[string]fakePage
	scale      int // the task's picture is the page's, made smaller so many times
	want       float64
}

func publishedCases() []publishedCase {
	const exercise = "https://russmaxdesign.github.io/exercise/"
	form := func(name string) fakePage {
		return fakePage{url: exercise, html: fmt.Sprintf(
			`<h2>What are mammals?</h2><input id="form-name" value="%s"><input id="form-email" value="alexisxy@hotmail.com">`, name), answers: map[string]string{"form-name": fmt.Sprintf("%q", name), "form-email": `"alexisxy@hotmail.com"`}}
	}
	google := fakePage{url: "https://www.google.com/", html: "<title>Google Search</title>"}
	github := fakePage{url: "https://github.com/web-arena-x", html: "<title>web-arena-x</title>"}
	search := map[string]fakePage{google.url: google}
	members := fakePage{html: memberPage,
		answers: map[string]string{`"byteblaze"`: `"Developer"`, `"primer"`: `"Owner"`}}
	camera := fakePage{html: productPage,
		answers: map[string]string{"#tab-label-reviews-title": "12", "price-final_price": "649.5",
			"manufacturer": `"Olympus"`}}
	cactus := fakePage{html: `<div class="fotorama__stage__frame"><img class="fotorama__img" src="/cactus.png" alt=""></div>`, answers: map[string]string{"fotorama__": `["/cactus.png"]`}}
	post := func(path, picture string) fakePage {
		return fakePage{url: "REDDIT" + path,
			html:    `<article><a><img class="submission__image" src="` + picture + `"></a></article>`,
			answers: map[string]string{"submission__image": `["` + picture + `"]`}}
	}
	html, both := []string{"program_html"}, []string(nil)
	text, address := []string{"string_match"}, []string{"url_match"}
	picture := []string{"page_image_query"}
	var list []publishedCase
	for _, d := range []Dialect{WebArena, Visual} {
		elsewhere := github
		list = append(list,
			publishedCase{name: "string, right", file: "string_match", d: d, types: text,
				said: "The date is 1985/04/18", want: 1},
			publishedCase{name: "string, wrong", file: "string_match", d: d, types: text,
				said: "The date is 1936/04/18", want: 0},
			publishedCase{name: "url, right", file: "url_exact_match", d: d, types: address, last: google, want: 1},
			publishedCase{name: "url, wrong", file: "url_exact_match", d: d, types: address, last: elsewhere, want: 0},
			publishedCase{name: "page, right", file: "html_content_exact_match", d: d, types: html, last: form(""),
				pages: search, want: 1},
			publishedCase{name: "page, wrong", file: "html_content_exact_match", d: d, types: html, last: google,
				pages: search, want: 0},
			publishedCase{name: "element, right", file: "html_content_element_exact_match", d: d, types: html,
				last: form("Hello World"), want: 1},
			publishedCase{name: "element, wrong", file: "html_content_element_exact_match", d: d, types: html,
				last: form("Hello"), want: 0},
			publishedCase{name: "url and element, right", file: "html_content_url_comb", d: d, types: both,
				last: form("Hello World"), want: 1},
			publishedCase{name: "the shop's answer, right", file: "func_eval_success", d: d, types: html, want: 1},
			publishedCase{name: "the shop's answer, wrong", file: "func_eval_fail", d: d, types: html, want: 0},
			publishedCase{name: "a post's page, right", file: "func_url_func_1", d: d, types: html,
				last: fakePage{url: "REDDIT/f/wallstreetbets/50431/-/comment/676875"},
				pages: map[string]fakePage{
					"REDDIT/f/wallstreetbets/50431/": {
						html: `<div class="submission__inner">How will SPY close on Monday 11/28 &amp;#x200B;</div>`,
						answers: map[string]string{
							".submission__inner": `"How will SPY close on Monday 11/28 &#x200B;"`}}}, want: 1},
		)
	}
	return append(list,
		publishedCase{name: "a member's role, right", file: "func_url_func_2", d: WebArena, types: html,
			pages: map[string]fakePage{"GITLAB/primer/design/-/project_members": members}, want: 1},
		publishedCase{name: "values, right", file: "html_required_values_success_1", d: Visual, types: html,
			last: camera, want: 1},
		publishedCase{name: "values, wrong", file: "html_required_values_failure_1", d: Visual, types: html,
			last: camera, want: 0},
		publishedCase{name: "picture, seen", file: "image_evaluator_yes", d: Visual, types: picture, sees: "yes",
			last: cactus, want: 1},
		publishedCase{name: "picture, not seen", file: "image_evaluator_yes", d: Visual, types: picture, sees: "no",
			last: cactus, want: 0},
		publishedCase{name: "picture itself, seen", file: "image_evaluator_yes_direct_img", d: Visual, types: picture,
			sees: "yes", last: cactus, want: 1},
		publishedCase{name: "picture itself, not seen", file: "image_evaluator_yes_direct_img", d: Visual,
			types: picture, sees: "no", last: cactus, want: 0},
		publishedCase{name: "picture, one of two", file: "image_evaluator_yes_no", d: Visual, types: picture,
			sees: "yes", last: cactus, want: 0},
		publishedCase{name: "the same picture", file: "exact_image_success", d: Visual, types: picture,
			last: post("/f/funny/125684/neighborhood-watch",
				"/submission_images/58fd8145d1b2dfa2dfddb2f29c481e66d38c487cc1b2e1d613cb086b0c1caaad.png"), want: 1},
		publishedCase{name: "another picture", file: "exact_image_failure", d: Visual, types: picture,
			last: post("/f/funny/125610/guilty-oc", "/other.png"), want: 0},
		publishedCase{name: "another picture, larger", file: "exact_image_resize_failure_1", d: Visual, types: picture,
			last: post("/f/funny/125684/neighborhood-watch", "/other.png"), want: 0},
		publishedCase{name: "another picture, smaller", file: "exact_image_resize_failure_2", d: Visual, types: picture,
			last: post("/f/funny/125684/neighborhood-watch", "/small.png"), want: 0},
		publishedCase{name: "half as large", file: "exact_image_resize_template", d: Visual, types: picture,
			last: post("/f/food/18838/loaf", "/photo.png"), scale: 2, want: 1},
		publishedCase{name: "an eighth as large", file: "exact_image_resize_template", d: Visual, types: picture,
			last: post("/f/food/18838/loaf", "/photo.png"), scale: 8, want: 0},
	)
}

// Published cases of the evaluators and what ours make of them. EVALRUN_TEST_DATA holds WebArena's
// configurations in webarena/evaluator-configs; those of VisualWebArena, in
// visualwebarena/evaluator-configs, are looked at if they are there. With EVALRUN_TEST_BROWSER the
// pages are shown by a browser, too.
func TestPublishedCases(t *testing.T) {
	data := os.Getenv("EVALRUN_TEST_DATA")
	if data == "" {
		t.Skip("published cases are not there; name their folder by EVALRUN_TEST_DATA")
	}
	pictures := map[string][]byte{
		"/cactus.png": encode(t, painting(30, 30, 1)), "/other.png": encode(t, painting(90, 60, 4)),
		"/small.png": encode(t, painting(20, 16, 4)), "/photo.png": encode(t, photo(1)),
		"/submission_images/58fd8145d1b2dfa2dfddb2f29c481e66d38c487cc1b2e1d613cb086b0c1caaad.png": encode(t,
			painting(60, 40, 1)),
		"/submission_images/5ab78381e020c33a6a221266260ca9811d6ad7af36df15b5edbf6b5c8f0d6280.jpg": encode(t,
			painting(40, 60, 2)),
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "benchmark\tcase\tconfiguration\tpublished\tours\tin a browser\twhy")
	n, missing := 0, 0
	for _, c := range publishedCases() {
		raw, err := os.ReadFile(filepath.Join(data, string(c.d), "evaluator-configs", c.file+".json"))
		if err != nil {
			if c.d == WebArena {
				t.Fatal(err)
			}
			missing++
			continue
		}
		served := maps.Clone(pictures)
		s := shop(t, served)
		ours := []string{"", "not looked at"}
		why := ""
		for i, inBrowser := range []bool{false, true} {
			if inBrowser && os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
				continue
			}
			got, parts, err := c.play(t, raw, s.URL, served, inBrowser)
			if err != nil || got != c.want {
				t.Errorf("%s, %s, in a browser %v: %v %v, %v, not %v", c.d, c.name, inBrowser, got, parts, err, c.want)
			}
			ours[i], why = fmt.Sprint(got), ""
			for _, p := range parts {
				why += p.Why
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%v\t%s\t%s\t%s\n", c.d, c.name, c.file, c.want, ours[0], ours[1],
			strings.ReplaceAll(why, s.URL, ""))
		n++
	}
	table.Flush()
	t.Logf("published outcome against ours, %d cases, %d not there:\n%s", n, missing, out.String())
}

// play grades a case on pages that are texts, or on the same ones in a browser. All hosts are the
// shop's; those of the web are folders of it.
func (c *publishedCase) play(t *testing.T, raw []byte, base string, served map[string][]byte,
	inBrowser bool) (float64, []Part, error) {
	t.Helper()
	here := strings.NewReplacer("REDDIT", base, "GITLAB", base)
	if inBrowser {
		here = strings.NewReplacer("REDDIT", base, "GITLAB", base, "https://www.google.com", base+"/google",
			"https://russmaxdesign.github.io", base+"/russmaxdesign", "https://github.com", base+"/github")
	}
	var eval map[string]any
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(all["eval"], &eval); err != nil {
		t.Fatal(err)
	}
	if c.types != nil {
		eval["eval_types"] = c.types
	}
	body, err := json.Marshal(eval)
	if err != nil {
		t.Fatal(err)
	}
	sites := Sites{"shopping": base, "reddit": base, "gitlab": base}
	cfg := config(t, c.d, here.Replace(sites.Expand(string(body))))
	e := &Evaluator{Dialect: c.d, Sites: sites, HTTP: http.DefaultClient, Captioner: sees(c.sees)}
	if c.scale > 0 {
		cfg.Eval.ImageTest[0].Like = "smaller.png"
		e.Picture = func(string) (image.Image, error) { return photo(c.scale), nil }
	}
	last := c.last
	if last.url = here.Replace(last.url); last.url == "" {
		last.url = base + "/"
	}
	pages := map[string]fakePage{}
	for k, p := range c.pages {
		pages[here.Replace(k)] = p
	}
	for _, q := range cfg.Eval.ImageTest {
		if q.URL != "last" {
			pages[q.URL] = c.last
		}
	}
	if !inBrowser {
		return e.Score(t.Context(), cfg, &fake{last: last, pages: pages}, &c.said)
	}
	pages[last.url] = last
	for address, p := range pages {
		path, _, _ := strings.Cut(strings.TrimPrefix(address, base), "?")
		served[path] = []byte("<!doctype html><meta charset=utf-8>" + p.html)
	}
	return e.Score(t.Context(), cfg, shown(t, sites, last.url), &c.said)
}

// shown has a browser show the agent's page.
func shown(t *testing.T, sites Sites, last string) Browser {
	t.Helper()
	c, err := lent(t).Pool.For(browsers.AccessOptions{
		Hosts: []string{strings.TrimPrefix(sites["shopping"], "http://")}}).NewContext(t.Context(),
		cdp.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	p, err := c.NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Goto(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	return &live{page: p, sites: sites, calm: quick, limit: patience,
		there: func(context.Context, string) error { return nil }}
}

func encode(t *testing.T, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// photo is soft at large and has fine grain, as photographs do: made half as small it is the same,
// made much smaller it is not. Each pixel of the smaller one is the mean of those it stands for.
func photo(scale int) image.Image {
	const w, h = 240, 160
	img := image.NewGray(image.Rect(0, 0, w/scale, h/scale))
	at := func(x, y int) float64 {
		fx, fy := float64(x), float64(y)
		return 128 + 60*math.Sin(fx/23)*math.Cos(fy/19) + 30*math.Sin(fx/1.9+fy/2.3)*math.Sin(fy/3.1)
	}
	for y := range h / scale {
		for x := range w / scale {
			sum := 0.0
			for dy := range scale {
				for dx := range scale {
					sum += at(x*scale+dx, y*scale+dy)
				}
			}
			img.SetGray(x, y, color.Gray{Y: uint8(sum / float64(scale*scale))})
		}
	}
	return img
}
