package webarena

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// config makes a configuration of an eval.
func config(t *testing.T, d Dialect, eval string) *Config {
	t.Helper()
	c, err := Parse(d, []byte(`{"task_id":1,"sites":["shopping"],"start_url":"http://x","intent":"do it","eval":`+eval+
		`}`))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestStringMatch(t *testing.T) {
	for _, tt := range []struct {
		d     Dialect
		rules string
		said  string
		judge string
		want  float64
		asked int
	}{
		{WebArena, `{"exact_match":"Quest Lumaflex™ Band"}`, ` "quest lumaflex™ band" `, "", 1, 0},
		{Visual, `{"exact_match":"a"}`, ` a `, "", 0, 0},
		{Visual, `{"exact_match":"a"}`, `'A'`, "", 1, 0},
		{WebArena, `{"exact_match":"'"}`, `"'"`, "", 1, 0},
		{WebArena, `{"must_include":["0"]}`, "there are 10 of them", "", 0, 0},
		{WebArena, `{"must_include":["0"]}`, "There are 0.", "", 1, 0},
		{WebArena, `{"must_include":["0","1"]}`, "10", "", 1, 0},
		{WebArena, `{"must_include":["10"]}`, "2100", "", 1, 0},
		{Visual, `{"must_include":["10"]}`, "2100", "", 0, 0},
		{Visual, `{"must_include":["red |OR| blue","car"]}`, "a blue car", "", 1, 0},
		{Visual, `{"must_include":["red car"]}`, "a bigred cars", "", 1, 0},
		{Visual, `{"must_exclude":["red"]}`, "a reddish car", "", 1, 0},
		{Visual, `{"must_exclude":["red"]}`, "a red car", "", 0, 0},
		{Visual, `{"one_of":["Cat","dog"]}`, "hotdog", "", 1, 0},
		{Visual, `{"one_of":["Cat","dog"]}`, "bird", "", 0, 0},
		{Visual, `{"required_values":[">= 1,000 |OR| == 7"]}`, "1,000", "", -1, 0},
		{Visual, `{"required_values":[">= 1000 |OR| == 7","<2000"]}`, " 1,000 ", "", 1, 0},
		{Visual, `{"required_values":["> 3"]}`, "3", "", 1, 0}, // within the tolerance, as published
		{Visual, `{"required_values":["> 3"]}`, "3.5", "", 0, 0},
		{Visual, `{"required_values":["~ 3"]}`, "3", "", -1, 0},
		{WebArena, `{"fuzzy_match":["2 hours","3"]}`, "two hours, three", "Correct.", 1, 2},
		{WebArena, `{"fuzzy_match":["2 hours","3"]}`, "x", "That is partially correct", 0, 1},
		{WebArena, `{"fuzzy_match":["2 hours"]}`, "x", "I cannot say", 0, 1},
		{WebArena, `{"fuzzy_match":"N/A"}`, "n/a", "", 1, 0},
		{WebArena, `{"fuzzy_match":"N/A"}`, "there is no such product", "same", 1, 1},
		{WebArena, `{"fuzzy_match":"N/A"}`, "it was raining", "different", 0, 1},
		// the judge's word takes the place of what was missing
		{WebArena, `{"must_include":["x"],"fuzzy_match":"N/A"}`, "N/A", "same", 1, 1},
		{WebArena, `{"fuzzy_match":"N/A","must_include":["x"]}`, "N/A", "", 0, 0},
		{WebArena, `{"one_of":["x"]}`, "x", "", -1, 0},
		{WebArena, `{"must_include":"x"}`, "x", "", -1, 0},
		{WebArena, `[]`, "x", "", -1, 0},
	} {
		j := &fakeJudge{says: tt.judge}
		e := &Evaluator{Dialect: tt.d, Judge: j}
		got, parts, err := e.Score(t.Context(),
			config(t, tt.d, `{"eval_types":["string_match"],"string_note":"no such product","reference_answers":`+
				tt.rules+`}`), &fake{}, &tt.said)
		if tt.want < 0 {
			if !errors.As(err, new(*ConfigError)) {
				t.Errorf("%s %s, %q: %v, %v, not an error of the task", tt.d, tt.rules, tt.said, got, err)
			}
			continue
		}
		if err != nil || got != tt.want || len(j.asked) != tt.asked {
			t.Errorf("%s %s, %q: %v %v, %v, asked %d times; not %v, asked %d times", tt.d, tt.rules, tt.said, got,
				parts, err, len(j.asked), tt.want, tt.asked)
		}
		if (got == 0) != (parts[0].Why != "") {
			t.Errorf("%s %s, %q: %v because of %q", tt.d, tt.rules, tt.said, got, parts[0].Why)
		}
	}
	e := &Evaluator{Dialect: WebArena}
	c := config(t, WebArena, `{"eval_types":["string_match"],"reference_answers":{"fuzzy_match":["x"]}}`)
	if got, _, err := e.Score(t.Context(), c, &fake{}, nil); got != 0 || err != nil {
		t.Errorf("without an answer: %v, %v", got, err)
	}
	said := "y"
	if _, _, err := e.Score(t.Context(), c, &fake{}, &said); !errors.Is(err, ErrNoJudge) {
		t.Errorf("without a judge: %v", err)
	}
}

func TestURLMatch(t *testing.T) {
	for _, tt := range []struct {
		d               Dialect
		note, ref, page string
		want            float64
	}{
		{WebArena, "", "http://s/a/", "https://s/a/b?x=1", 1},
		{WebArena, "GOLD in PRED", "http://s/a?q=1&q=2", "http://s/a?q=2&z=&r", 1},
		{WebArena, "", "http://s/a?q=1", "http://s/a?q=2", 0},
		{WebArena, "", "http://s/a?q=1", "http://s/a", 0},
		{WebArena, "", "http://s/a?q=", "http://s/a", 1},
		{WebArena, "", "http://s/a?q=a+b", "http://s/a?q=a%20b#f", 1},
		{WebArena, "", "http://s/x |OR| http://s/a?q=1", "http://s/a?q=2", 0},
		{WebArena, "", "http://s/x?q=2 |OR| http://s/a?q=1", "http://s/a?q=2", 1}, // values of one, path of the other
		{WebArena, "", "http://s/a;p", "http://s/a;z?x", 1},
		{WebArena, "EXACT", "http://s/a", "http://s/a", -1},
		{Visual, "", "http://localhost:7770/a/", "http://127.0.0.1:7770/a", 1},
		{Visual, "EXACT", "http://s/a", "http://s/a?x=1", 0},
		{Visual, "GOLD in PRED", "http://s/b |OR| http://s/a", "http://s/a?x=1", 1},
	} {
		note := ""
		if tt.note != "" {
			note = `,"url_note":"` + tt.note + `"`
		}
		e := &Evaluator{Dialect: tt.d}
		got, _, err := e.Score(t.Context(),
			config(t, tt.d, `{"eval_types":["url_match"],"reference_url":"`+tt.ref+`"`+note+`}`),
			&fake{last: fakePage{url: tt.page}}, nil)
		if tt.want < 0 && errors.As(err, new(*ConfigError)) {
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("%s %q %s at %s: %v, %v, not %v", tt.d, tt.note, tt.ref, tt.page, got, err, tt.want)
		}
	}
}

func TestProgramHTML(t *testing.T) {
	s := shop(t, nil)
	sites := Sites{"shopping": s.URL}
	b := &fake{last: fakePage{url: "http://r/f/food/12/-/comment/3", html: "<b>Tom &amp; Jerry&#39;s</b>",
		answers: map[string]string{
			".list": `[1,2.5,"a",null,true,{"k":"v"}]`, ".none": "null", ".num": "12", ".word": `"twelve"`,
			".empty": `""`,
			".zero":  "0", "lambda-text": `"Hello"`}},
		pages: map[string]fakePage{"http://r/f/food/12/": {html: "the post"},
			s.URL + "/sales/order/view/order_id/170/": {html: "the order"}}}
	for _, tt := range []struct {
		d      Dialect
		target string
		want   float64
	}{
		{WebArena, `{"url":"last","locator":"","required_contents":{"must_include":["Tom & Jerry's"]}}`, 1},
		{Visual, `{"url":"last","locator":"","required_contents":{"must_include":["Tom & Jerry's"]}}`, 0},
		{WebArena, `{"url":"last","locator":"document.q('.list')","required_contents":{"exact_match":"[1, 2.5, 'a', None, True, {'k': 'v'}]"}}`, 1},
		{WebArena, `{"url":"last","locator":"document.q('.none')","required_contents":{"exact_match":"None"}}`, 1},
		{WebArena, `{"url":"last","locator":"document.q('.throws')","required_contents":{"exact_match":""}}`, 1},
		{WebArena, `{"url":"last","locator":"[...document.q('.num')]","required_contents":{"must_include":["2 |OR| x"]}}`, 1},
		{WebArena, `{"url":"last","locator":"document.q('.num')","prep_actions":["throws"],"required_contents":{"exact_match":"12"}}`, 1},
		{WebArena, `{"url":"last","locator":"lambda:() => document.q('lambda-text')","required_contents":{"exact_match":"hello"}}`, -1},
		{Visual, `{"url":"last","locator":"lambda:() => document.q('lambda-text')","required_contents":{"exact_match":"hello"}}`, 1},
		{Visual, `{"url":"last","locator":"lambda:() => document.q('.empty')","required_contents":{"exact_match":""}}`,
			0},
		{Visual, `{"url":"last","locator":"lambda:() => document.q('.zero')","required_contents":{"exact_match":"0"}}`,
			0},
		{Lite, `{"url":"last","locator":"lambda:() => document.q('.throws')","required_contents":{"must_include":[""]}}`, 0},
		{Visual, `{"url":"last","locator":"document.q('.num')","required_contents":{"required_values":[">= 12","< 13"]}}`, 1},
		{Visual, `{"url":"last","locator":"document.q('.word')","required_contents":{"required_values":[">= 12"]}}`, 0},
		{Visual, `{"url":"last","locator":"document.q('.word')","required_contents":{"must_exclude":["twelv"]}}`, 1},
		{Visual, `{"url":"last","locator":"document.q('.word')","required_contents":{"fuzzy_match":"12 |OR| twelve"}}`,
			1},
		{Lite, `{"url":"last","locator":"document.q('.word')","required_contents":{"fuzzy_match":["12","twelve"]}}`, 1},
		{WebArena, `{"url":"func:reddit_get_post_url('__last_url__')","locator":"","required_contents":{"must_include":["the post"]}}`, 1},
		{WebArena, `{"url":"func:shopping_get_latest_order_url()","locator":"","required_contents":{"must_include":["the order"]}}`, 1},
		{WebArena, `{"url":"last","locator":"func:shopping_get_sku_latest_review_rating('B09BCM56J7')","required_contents":{"must_include":["100"]}}`, 1},
		{WebArena, `{"url":"last","locator":"func:shopping_get_sku_latest_review_author(\"B09BCM56J7\")","required_contents":{"exact_match":"CupcakeCupcake"}}`, 1},
		{Visual, `{"url":"last","locator":"func:shopping_get_sku_latest_review_text('NONE')","required_contents":{"exact_match":""}}`, 1},
		{Visual, `{"url":"last","locator":"func:get_query_text(__page__, '.absent')","required_contents":{"exact_match":""}}`, 1},
		{Visual, `{"url":"last","locator":"func:get_query_text(__page__, '.word')","required_contents":{"exact_match":"twelve"}}`, 1},
		{Visual, `{"url":"last","locator":"func:get_query_text('.word')","required_contents":{"exact_match":"twelve"}}`,
			-1},
		{WebArena, `{"url":"last","locator":"func:__import__('os').system('id')","required_contents":{"exact_match":""}}`, -1},
		{WebArena, `{"url":"last","locator":"window.x","required_contents":{"exact_match":""}}`, -1},
		{WebArena, `{"url":"last","locator":"","required_contents":{"must_exclude":["x"]}}`, -1},
		{WebArena, `{"url":"last","locator":"","required_contents":[]}`, -1},
	} {
		e := &Evaluator{Dialect: tt.d, Sites: sites, HTTP: http.DefaultClient, Judge: &fakeJudge{says: "correct"}}
		got, parts, err := e.Score(t.Context(),
			config(t, tt.d, `{"eval_types":["program_html"],"program_html":[`+tt.target+`]}`), b, nil)
		switch {
		case tt.want < 0:
			if !errors.As(err, new(*ConfigError)) {
				t.Errorf("%s %s: %v, %v, not an error of the task", tt.d, tt.target, got, err)
			}
		case err != nil || got != tt.want:
			t.Errorf("%s %s: %v %v, %v, not %v", tt.d, tt.target, got, parts, err, tt.want)
		}
	}
}

// What is not a script's exception is not the page's fault.
func TestBrowserGone(t *testing.T) {
	gone := errors.New("the browser has died")
	for _, locator := range []string{"", "document.x", "lambda:x", "func:get_query_text(__page__, 'a')"} {
		e := &Evaluator{Dialect: Visual}
		_, _, err := e.Score(t.Context(),
			config(t, Visual, `{"eval_types":["program_html"],"program_html":[{"url":"last","locator":"`+locator+
				`","required_contents":{"exact_match":"x"}}]}`), dead{gone}, nil)
		if !errors.Is(err, gone) {
			t.Errorf("%q: %v", locator, err)
		}
	}
}

type dead struct{ err error }

func (d dead) Active() Page                                          { return d }
func (d dead) Visit(context.Context, string, func(Page) error) error { return d.err }
func (d dead) URL() string                                           { return "" }
func (d dead) Content(context.Context) (string, error)               { return "", d.err }
func (d dead) Eval(context.Context, string) (json.RawMessage, error) { return nil, d.err }

func TestSimilarity(t *testing.T) {
	type p struct{ w, h, k int }
	for _, tt := range []struct {
		a, b p
		want float64 // scikit-image's and Pillow's
	}{
		{p{40, 30, 1}, p{40, 30, 1}, 1},
		{p{40, 30, 1}, p{40, 30, 2}, 0.697733572043305},
		{p{40, 30, 1}, p{20, 15, 1}, 0.5974145387132929},
		{p{40, 30, 1}, p{31, 57, 3}, 0.49534927179841337},
		{p{9, 7, 1}, p{50, 8, 2}, 0.3158346807684289},
		{p{3, 3, 1}, p{3, 3, 1}, -1},
	} {
		if got := similarity(painting(tt.a.w, tt.a.h, tt.a.k),
			painting(tt.b.w, tt.b.h, tt.b.k)); math.Abs(got-tt.want) > 1e-4 {
			t.Errorf("%v, %v: %v, not %v", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestTokens(t *testing.T) {
	for text, want := range map[string]string{
		"it costs $5.":              "it|costs|$|5|.",
		"1,000 and 3.5, at 5:30":    "1,000|and|3.5|,|at|5:30",
		"don't, it's; we'll":        "do|n't|,|it|'s|;|we|'ll",
		`he said "hi".`:             "he|said|``|hi|''|.",
		"a -- b (c) [d] {e} <f>":    "a|--|b|(|c|)|[|d|]|{|e|}|<|f|>",
		"there are 2. there is one": "there|are|2.|there|is|one", // a number before a small letter ends no sentence
		"in boston. thanks":         "in|boston|.|thanks",
		"dr. who met mr. x. Yes!":   "dr.|who|met|mr.|x|.|Yes|!",
		"x... y":                    "x|...|y",
		"'cute' 'n' 'a'":            "'cute|'|'n|'|'|a|'",
		"N/A":                       "N/A",
		"":                          "",
	} {
		if got := strings.Join(tokens(text), "|"); got != want {
			t.Errorf("%q: %s, not %s", text, got, want)
		}
	}
}

func TestSites(t *testing.T) {
	s, missing := SitesFrom(WebArena, func(k string) string {
		return map[string]string{"WA_SHOPPING": "http://h:1/", "WA_SHOPPING_ADMIN": "http://h:2/admin",
			"WA_REDDIT": "todo"}[k]
	})
	if want := []string{"WA_GITLAB", "WA_WIKIPEDIA", "WA_MAP", "WA_HOMEPAGE"}; !slices.Equal(missing, want) {
		t.Errorf("missing: %v", missing)
	}
	if got := s.Expand("__SHOPPING_ADMIN__/x __SHOPPING__/y __MAP__"); got != "http://h:2/admin/x http://h:1/y __MAP__" {
		t.Errorf("expanded: %s", got)
	}
	if s.There("reddit") || s.There("map") || !s.There("shopping") {
		t.Error("sites that are there")
	}
	for address, want := range map[string]bool{"about:blank": true, "chrome://newtab/": true, "http://h:1/a?b": true,
		"http://h:3/": false, "https://h:2": true, "http://h:1@evil/": false, "file:///etc/passwd": true} {
		if got := s.Allowed(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
