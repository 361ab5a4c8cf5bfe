package webarena

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// A shown page is in a browser, and said to be of a shop.
type shownPage struct{ livePage }

func (shownPage) URL() string { return "http://shop/page" }

// show has a browser show pages, one after the other.
func show(t *testing.T) func(html string) Page {
	t.Helper()
	var now string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { page(w, "", now) }))
	t.Cleanup(s.Close)
	c, err := lent(t).Pool.For(browsers.AccessOptions{
		Hosts: []string{strings.TrimPrefix(s.URL, "http://")}}).NewContext(
		t.Context(), cdp.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	p, err := c.NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return func(html string) Page {
		t.Helper()
		now = html
		if err := p.GotoWithin(t.Context(), s.URL, patience); err != nil {
			t.Fatal(err)
		}
		return shownPage{livePage{p}}
	}
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
	return `<article class="comment" data-level="` + n +
		`"><div class="comment__main"><header><h1><span class="fg-inherit">` + user + `</span> <span><time datetime="` +
		when + `"></time></span></h1></header><div class="comment__content">` + text + `</div></div>` + children +
		`</article>`
}

var postPage = `<div id="main"><div class="comment__main"><header><h1><span class="fg-inherit">poster</span> <span><time datetime="2022-01-01T00:00:00+00:00"></time></span></h1></header><div class="comment__content">post</div></div>` +
	comment(1, "ann", "first", "2022-01-02T00:00:00+00:00",
		comment(2, "me", "older", "2022-01-03T00:00:00+00:00", "")) +
	comment(1, "bob", "second", "2022-01-02T10:00:00+00:00",
		comment(2, "me", "newer", "2022-01-05T00:00:00+02:00",
			comment(3, "me", "to myself", "2022-01-09T00:00:00+00:00", ""))) + `</div>`

// The helpers' scripts, in a browser.
func TestHelpersInBrowser(t *testing.T) {
	show := show(t)
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
		v, err := e.call(t.Context(), tt.call, show(tt.page), "")
		if err != nil || text(v) != tt.want {
			t.Errorf("%s: %v, %v, not %q", tt.call, v, err, tt.want)
		}
	}
	v, err := (&Evaluator{Dialect: Visual}).call(t.Context(), "shopping_get_order_product_name_list(__page__)",
		show(orderPage), "")
	if err != nil || !strings.HasPrefix(text(v), "Bars") || !strings.HasSuffix(text(v), " |OR| Lamp") {
		t.Errorf("names of products: %v, %v", v, err)
	}
}

// Locators of all kinds, and the pictures of a page, in a browser.
func TestLocatorsInBrowser(t *testing.T) {
	p := show(t)(`<form><input id="form-name" value="Hello World"><li>b<li>a</form><img src="/a.png"><img src="/hidden.png" style="display:none"><img src="/deco.png" alt="">
		<div class="frame"><img src="http://shop/b.png"></div><img class="frame" src="http://elsewhere/c.png">`)
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
	for class, want := range map[string]string{"": "['/a.png', 'http://shop/b.png', 'http://elsewhere/c.png']",
		".frame": "['http://shop/b.png', 'http://elsewhere/c.png']", ".it's": "SyntaxError"} {
		v, err := evaluate(t.Context(), p, sources+"("+pyrepr.Repr(pyrepr.Str(class))+")")
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("pictures of %q: %v, not %s", class, err, want)
			}
			continue
		}
		if got := pyrepr.Repr(v); got != want {
			t.Errorf("pictures of %q: %s, not %s", class, got, want)
		}
	}
	// A page's word for where its pictures are does not lead away from the task's sites.
	var asked []string
	e := &Evaluator{Dialect: Visual, Sites: Sites{"shopping": "http://shop"},
		HTTP: doer(func(r *http.Request) { asked = append(asked, r.URL.String()) })}
	if _, err := e.picturesOf(t.Context(), &ImageQuery{}, p); err != nil ||
		strings.Join(asked, " ") != "http://shop/a.png http://shop/b.png" {
		t.Errorf("asked for %v, %v", asked, err)
	}
}

type doer func(*http.Request)

func (d doer) Do(r *http.Request) (*http.Response, error) {
	d(r)
	return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
}
