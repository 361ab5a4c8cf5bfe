package webarena

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// html implements program_html: what pages must contain at the end. Each target is checked in a new
// page, except for the agent's last page.
func (e *Evaluator) html(ctx context.Context, c *Config, b Browser) (float64, string, error) {
	for i := range c.Eval.HTML {
		t := &c.Eval.HTML[i]
		var missing string
		look := func(p Page) error {
			got, ok, err := e.find(ctx, t, p)
			if err != nil {
				return err
			}
			if !ok {
				missing = "nothing at " + t.Locator
				return nil
			}
			missing, err = e.wants(ctx, t, got)
			return err
		}
		if err := e.at(ctx, b, t.URL, look); err != nil {
			return 0, "", err
		}
		if missing != "" {
			return 0, missing, nil
		}
	}
	return 1, "", nil
}

// at passes the page that a configuration names to f: "last", an address, or a helper call that
// computes the address from the last one.
func (e *Evaluator) at(ctx context.Context, b Browser, address string, f func(Page) error) error {
	if strings.HasPrefix(address, "func") {
		_, text, ok := strings.Cut(address, "func:")
		if !ok {
			return wrong("url %q: func: and a call were expected", address)
		}
		v, err := e.call(ctx, text, nil, b.Active().URL())
		if err != nil {
			return err
		}
		address = string(v.(pyrepr.Str)) // helpers without a page return strings
	}
	if address == "last" {
		return f(b.Active())
	}
	return b.Visit(ctx, address, f)
}

// find returns what a locator matches in a page. ok is false if the dialect rejects the whole page
// in this case.
func (e *Evaluator) find(ctx context.Context, t *Target, p Page) (got pyrepr.Value, ok bool, err error) {
	l := t.Locator
	switch {
	case strings.TrimSpace(l) == "":
		text, err := p.Content(ctx)
		return e.unescape(pyrepr.Str(text)), true, err
	case strings.HasPrefix(l, "document."), strings.HasPrefix(l, "[...document."):
		for _, prep := range t.Prepare {
			if _, err := evaluate(ctx, p, "(() => "+prep+")()"); err != nil {
				if !thrown(err) {
					return nil, false, err
				}
				break
			}
		}
		v, err := evaluate(ctx, p, "(() => "+l+")()")
		if thrown(err) {
			return pyrepr.Str(""), true, nil // an exception means that nothing was found
		}
		if err != nil {
			return nil, false, err
		}
		return e.unescape(pyrepr.Str(text(v))), true, nil
	case strings.HasPrefix(l, "lambda:") && e.Dialect != WebArena:
		// strips the characters of "lambda:", not the prefix, as the published code does
		v, err := evaluate(ctx, p, "(x => typeof x === 'function' ? x() : x)("+
			strings.TrimSpace(strings.TrimLeft(l, "lambd:"))+")")
		if thrown(err) {
			return nil, false, nil
		}
		return v, err == nil && !falsy(v), err
	case strings.HasPrefix(l, "func:"):
		v, err := e.call(ctx, strings.TrimPrefix(l, "func:"), p, p.URL())
		return e.unescape(v), err == nil, err
	}
	return nil, false, wrong("locator %q is not known", l)
}

// unescape replaces HTML character references. Only WebArena does so.
func (e *Evaluator) unescape(v pyrepr.Value) pyrepr.Value {
	if s, ok := v.(pyrepr.Str); ok && e.Dialect == WebArena {
		return pyrepr.Str(html.UnescapeString(string(s)))
	}
	return v
}

// wants returns what is missing from the required content, or "". Only the first known kind of
// requirement is used; others are ignored, as published.
func (e *Evaluator) wants(ctx context.Context, t *Target, v pyrepr.Value) (string, error) {
	d, got := e.Dialect, text(v)
	if r, ok := t.Want.get("exact_match"); ok {
		if r.Many && len(r.List) == 1 {
			r.Text = r.List[0]
		}
		if !d.equal(r.Text, got) {
			return "not " + r.Text, nil
		}
		return "", nil
	}
	if r, ok := t.Want.get("must_include"); ok {
		for _, w := range r.List {
			if !d.anyIncluded(w, got) {
				return "without " + w, nil
			}
		}
		return "", nil
	}
	if r, ok := t.Want.get("must_exclude"); ok && d == Visual {
		for _, w := range r.List {
			if d.includes(w, got, false) {
				return "with " + w, nil
			}
		}
		return "", nil
	}
	if r, ok := t.Want.get("required_values"); ok && d == Visual {
		var w string
		var err error
		switch f, isNumber := number(v); {
		case isNumber:
			w, err = unmetBy(f, r.List)
		default:
			w, err = unmet(got, r.List)
		}
		if w != "" {
			w = "not " + w
		}
		return w, err
	}
	if r, ok := t.Want.get("fuzzy_match"); ok && d != WebArena {
		refs := r.List
		switch {
		case d == Lite && r.Many:
			refs = []string{strings.Join(r.List, ", ")}
		case !r.Many:
			refs = strings.Split(r.Text, or)
		}
		for _, w := range refs {
			same, err := e.equivalent(ctx, "what a page shows", w, got)
			if err != nil {
				return "", err
			}
			if !same {
				return "does not mean " + w, nil
			}
		}
		return "", nil
	}
	return "", wrong("required_contents: %q is not known", t.Want.names())
}

func evaluate(ctx context.Context, p Page, expression string) (pyrepr.Value, error) {
	raw, err := p.Eval(ctx, expression)
	if err != nil || raw == nil {
		return pyrepr.None{}, err
	}
	return pyrepr.FromJSON(raw)
}

func thrown(err error) bool { return errors.As(err, new(*ScriptError)) }

// text is Python's str.
func text(v pyrepr.Value) string {
	if s, ok := v.(pyrepr.Str); ok {
		return string(s)
	}
	return pyrepr.Repr(v)
}

// falsy is Python's not v.
func falsy(v pyrepr.Value) bool {
	switch v := v.(type) {
	case pyrepr.Str:
		return v == ""
	case pyrepr.Bool:
		return !bool(v)
	case pyrepr.None:
		return true
	case pyrepr.List:
		return len(v) == 0
	case pyrepr.Dict:
		return len(v) == 0
	}
	f, ok := number(v)
	return ok && f == 0
}

func number(v pyrepr.Value) (float64, bool) {
	switch v := v.(type) {
	case pyrepr.Float:
		return float64(v), true
	case pyrepr.Int:
		f, err := json.Number(v).Float64()
		return f, err == nil
	}
	return 0, false
}
