package webarena

import (
	"context"
	"encoding/json"
	"html"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/py"
)

// shellPage evaluates in a browser of its own, which prints the page that an expression has written its result to.
type shellPage struct {
	t    *testing.T
	html string
}

func (p shellPage) URL() string                             { return "http://shop/page" }
func (p shellPage) Content(context.Context) (string, error) { return p.html, nil }

func (p shellPage) Eval(ctx context.Context, expression string) (json.RawMessage, error) {
	name := filepath.Join(p.t.TempDir(), "page.html")
	source, err := json.Marshal(expression) // < is escaped, so that no script ends early
	if err != nil {
		return nil, err
	}
	page := p.html + `<pre id=evalrun></pre><script>
		let out;
		try { const v = (0, eval)(` + string(source) + `); out = v === undefined ? 'undefined' : 'value ' + JSON.stringify(v) } catch (e) { out = 'threw ' + e }
		document.getElementById('evalrun').textContent = '{{' + out + '}}';
	</script>`
	if err := os.WriteFile(name, []byte("<!doctype html><meta charset=utf-8>"+page), 0o600); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	b, err := exec.CommandContext(ctx, "chromium-headless-shell", "--no-sandbox", "--disable-gpu", "--user-data-dir="+p.t.TempDir(), "--dump-dom", "file://"+name).Output()
	if err != nil {
		return nil, err
	}
	dump := string(b)
	dump = dump[strings.LastIndex(dump, `<pre id="evalrun">{{`)+len(`<pre id="evalrun">{{`):]
	out := html.UnescapeString(dump[:strings.LastIndex(dump, "}}</pre>")])
	switch kind, rest, _ := strings.Cut(out, " "); kind {
	case "value":
		return json.RawMessage(rest), nil
	case "threw":
		return nil, &ScriptError{rest}
	}
	return nil, nil
}

const memberPage = `<table><tr><td data-label="Account"><span class="gl-avatar-labeled-sublabel">@primer</span><td class="col-max-role"><span>Owner</span>
<tr><td data-label="Account"><span class="gl-avatar-labeled-sublabel">@byteblaze</span><td class="col-max-role"><span>Developer</span></table>`

const productPage = `<main id="maincontent"><div class="columns"><div><div class="product-info-main"><div class="product-info-price"><div class="price-box price-final_price"><span><span>$649.50</span></span></div></div></div></div></div></main>
<a id="tab-label-reviews-title">Reviews 12</a><div class="rating-result" title="57%"></div>
<table id="productDetails_detailBullets_sections1"><tbody><tr><th>Manufacturer</th><td>Olympus</td></tr><tr><th>Color</th><td>Silver</td></tr><tr><th>Brand Name</th><td>OM-D</td></tr></tbody></table>
<p class="note">A "quoted" <b>Text</b>'s</p>`

const orderPage = `<table id="my-orders-table"><thead><tr><th>x</th></tr></thead>
<tbody><tr><td class="col name">Bars<dl><dt>Size</dt><dd>1.4 oz</dd><dt>Flavor</dt><dd>Mint</dd></dl></td><td class="col sku">B00MXUFL0E </td><td class="col qty">Ordered2</td></tr></tbody>
<tbody><tr><td class="col name">Lamp</td><td class="col sku">B07ZD2PB9F</td><td class="col qty">Ordered11</td></tr></tbody></table>`

func comment(level int, user, text, when, children string) string {
	n := string(rune('0' + level))
	return `<article class="comment" data-level="` + n + `"><div class="comment__main"><header><h1><span class="fg-inherit">` + user + `</span> <span><time datetime="` + when + `"></time></span></h1></header><div class="comment__content">` + text + `</div></div>` + children + `</article>`
}

var postPage = `<div id="main"><div class="comment__main"><header><h1><span class="fg-inherit">poster</span> <span><time datetime="2022-01-01T00:00:00+00:00"></time></span></h1></header><div class="comment__content">post</div></div>` +
	comment(1, "ann", "first", "2022-01-02T00:00:00+00:00", comment(2, "me", "older", "2022-01-03T00:00:00+00:00", "")) +
	comment(1, "bob", "second", "2022-01-02T10:00:00+00:00", comment(2, "me", "newer", "2022-01-05T00:00:00+02:00", comment(3, "me", "to myself", "2022-01-09T00:00:00+00:00", ""))) + `</div>`

// The helpers' scripts, in a browser.
func TestHelpersInBrowser(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("needs chromium-headless-shell; set EVALRUN_TEST_BROWSER=1 where it is")
	}
	for _, tt := range []struct{ page, call, want string }{
		{memberPage, "gitlab_get_project_memeber_role(__page__, 'byteblaze')", "Developer"},
		{memberPage, "gitlab_get_project_memeber_role(__page__, 'nobody')", ""},
		{productPage, "shopping_get_product_price(__page__)", "649.5"},
		{productPage, "shopping_get_num_reviews(__page__)", "12"},
		{productPage, "shopping_get_rating_as_percentage(__page__)", "57"},
		{memberPage, "shopping_get_product_price(__page__)", "0"},
		{productPage, "shopping_get_product_attributes(__page__, 'manufacturer |OR| brand name')", "Olympus, OM-D"},
		{memberPage, "shopping_get_product_attributes(__page__, 'x')", ""},
		{productPage, `get_query_text(__page__, '.note')`, `A "quoted" Text's`},
		{productPage, `get_query_text_lowercase(__page__, "p[class='note']")`, `a "quoted" text's`},
		{productPage, `get_query_text(__page__, '.none')`, ""},
		{orderPage, "shopping_get_order_product_quantity(__page__, 'B07ZD2PB9F')", "11"},
		{orderPage, "shopping_get_order_product_quantity(__page__, 'X |OR| B00MXUFL0E')", "2"},
		{orderPage, "shopping_get_order_product_quantity(__page__, 'X')", "0"},
		{orderPage, "shopping_get_order_product_option(__page__, 'B00MXUFL0E', 'Flavor')", "Mint"},
		{orderPage, "shopping_get_order_product_option(__page__, 'B07ZD2PB9F', 'Flavor')", ""},
		{postPage, "reddit_get_latest_comment_content_by_username(__page__, 'me')", "to myself"},
		{postPage, "reddit_get_latest_comment_content_by_username(__page__, 'carl')", ""},
		{postPage, "reddit_get_parent_comment_username_of_latest_comment_by_username(__page__, 'me')", "bob"},
		{postPage, "reddit_get_parent_comment_username_of_latest_comment_by_username(__page__, 'ann')", "poster"},
		{memberPage, "reddit_get_latest_comment_content_by_username(__page__, 'me')", ""},
	} {
		e := &Evaluator{Dialect: Visual}
		v, err := e.call(t.Context(), tt.call, shellPage{t, tt.page}, "")
		if err != nil || text(v) != tt.want {
			t.Errorf("%s: %v, %v, not %q", tt.call, v, err, tt.want)
		}
	}
	v, err := (&Evaluator{Dialect: Visual}).call(t.Context(), "shopping_get_order_product_name_list(__page__)", shellPage{t, orderPage}, "")
	if err != nil || !strings.HasPrefix(text(v), "Bars") || !strings.HasSuffix(text(v), " |OR| Lamp") {
		t.Errorf("names of products: %v, %v", v, err)
	}
}

// Locators of all kinds, and the pictures of a page, in a browser.
func TestLocatorsInBrowser(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("needs chromium-headless-shell; set EVALRUN_TEST_BROWSER=1 where it is")
	}
	p := shellPage{t, `<form><input id="form-name" value="Hello World"><li>b<li>a</form><img src="/a.png"><img src="/hidden.png" style="display:none"><img src="/deco.png" alt="">
		<div class="frame"><img src="http://shop/b.png"></div><img class="frame" src="http://elsewhere/c.png">`}
	for locator, want := range map[string]string{
		"document.querySelector('[id=\"form-name\"').value":                                      "Hello World",
		"document.querySelector('.none').value":                                                  "",
		"[...document.querySelectorAll('li')].map(x => x.textContent).sort()":                    "['a', 'b']",
		"lambda:() => { const x = document.querySelector('#form-name'); return x.value.length }": "11",
		"lambda: document.title":                                                                 "<nothing>",
	} {
		e := &Evaluator{Dialect: Visual}
		v, ok, err := e.find(t.Context(), &Target{Locator: locator}, p)
		got := "<nothing>"
		if ok {
			got = text(v)
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, %v, not %s", locator, got, err, want)
		}
	}
	for class, want := range map[string]string{"": "['/a.png', 'http://shop/b.png', 'http://elsewhere/c.png']", ".frame": "['http://shop/b.png', 'http://elsewhere/c.png']", ".it's": "SyntaxError"} {
		v, err := evaluate(t.Context(), p, sources+"("+py.Repr(py.Str(class))+")")
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("pictures of %q: %v, not %s", class, err, want)
			}
			continue
		}
		if got := py.Repr(v); got != want {
			t.Errorf("pictures of %q: %s, not %s", class, got, want)
		}
	}
	// A page's word for where its pictures are does not lead away from the task's sites.
	var asked []string
	e := &Evaluator{Dialect: Visual, Sites: Sites{"shopping": "http://shop"}, HTTP: doer(func(r *http.Request) { asked = append(asked, r.URL.String()) })}
	if _, err := e.picturesOf(t.Context(), &ImageQuery{}, p); err != nil || strings.Join(asked, " ") != "http://shop/a.png http://shop/b.png" {
		t.Errorf("asked for %v, %v", asked, err)
	}
}

type doer func(*http.Request)

func (d doer) Do(r *http.Request) (*http.Response, error) {
	d(r)
	return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
}
