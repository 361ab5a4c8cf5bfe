package cdp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// An Element identifies an element of a page by how it is found. Each action looks it up again, as
// a user would.
type Element struct {
	p        *Page
	f        *frame
	selector string
	shown    string // name in logs
}

// maxBidFrames limits how many frames a bid may lead through.
const maxBidFrames = 100

// Find looks up the element of a bid, through the frames named by the bid's letters. It checks
// immediately, without waiting, that the element exists.
func (p *Page) Find(ctx context.Context, bid string) (*Element, error) {
	absent := &Failure{"ValueError", `Could not find element with bid "` + bid + `"`}
	f, shown := p.mainFrame(), ""
	i := 0
	for depth := 0; i < len(bid) && !digits(bid[i:]) && depth < maxBidFrames; depth++ {
		i += runeLen(bid[i:])
		for i < len(bid) && bid[i] >= 'A' && bid[i] <= 'Z' {
			i++
		}
		name := bid[:i]
		e := &Element{p: p, f: f, selector: bidSelector(name), shown: shown + testID(name)}
		inner, err := e.frame(ctx)
		if err != nil {
			return nil, err
		}
		if inner == nil {
			return nil, absent
		}
		f, shown = inner, e.shown+`.frame_locator(":scope").`
	}
	e := &Element{p: p, f: f, selector: bidSelector(bid), shown: shown + testID(bid)}
	n, err := e.Count(ctx)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, absent
	}
	return e, nil
}

// Select returns the first element that matches a CSS selector in the main frame, through open
// shadow roots. It need not exist yet.
func (p *Page) Select(selector string) *Element {
	return &Element{p: p, f: p.mainFrame(), selector: selector,
		shown: `locator("` + strings.ReplaceAll(selector, `"`, `\"`) + `")`}
}

// Count returns how many elements match now.
func (e *Element) Count(ctx context.Context) (n int, err error) {
	tools, err := e.p.tools(ctx, e.f)
	if err != nil {
		return 0, e.p.ended("Locator.count", err)
	}
	if err := e.p.callMethod(ctx, tools, "count", &n, e.selector); err != nil {
		return 0, e.p.ended("Locator.count", err)
	}
	return n, nil
}

// frame returns the frame inside the element; nil if there is no such element.
func (e *Element) frame(ctx context.Context) (*frame, error) {
	const api = "Locator.count"
	_, object, found, err := e.resolve(ctx)
	if err != nil {
		return nil, e.p.ended(api, err)
	}
	if found.N == 0 {
		return nil, nil
	}
	raw, err := e.p.call(ctx, "DOM.describeNode", map[string]any{"objectId": object})
	if err != nil {
		return nil, e.p.ended(api, err)
	}
	var d struct {
		Node struct {
			Frame string `json:"frameId"`
		} `json:"node"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, err
	}
	e.p.c.mu.Lock()
	f := e.p.frames[d.Node.Frame]
	e.p.c.mu.Unlock()
	if f == nil || f == e.f {
		return nil, &Failure{"Error", api + `: Error: Selector "internal:testid=` +
			strings.TrimSuffix(e.selector, "]") + `s] >> :scope" resolved to ` +
			found.Shown[0] + ", <iframe> was expected"}
	}
	return f, nil
}

// found is the result of a search.
type found struct {
	N     int      `json:"n"`
	Shown []string `json:"shown"`
}

// resolve finds the element and makes it the target of the frame's tools.
func (e *Element) resolve(ctx context.Context) (tools, object string, f found, err error) {
	if tools, err = e.p.tools(ctx, e.f); err != nil {
		return "", "", f, err
	}
	q, err := e.p.startMethod(tools, "find", e.selector)
	if err != nil {
		return "", "", f, err
	}
	t, err := e.p.startMethodRef(tools, "target")
	if err != nil {
		return "", "", f, err
	}
	if err := q.value(ctx, &f); err != nil {
		return "", "", f, err
	}
	raw, err := t.Wait(ctx)
	if err != nil {
		return "", "", f, err
	}
	r, err := evalResult(raw)
	return tools, r.Object, f, err
}

func bidSelector(bid string) string { return `[bid="` + cssString(bid) + `"]` }

// testID is the reference's name for the element of a bid.
func testID(bid string) string {
	return `get_by_test_id("` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(bid) + `")`
}

// cssString escapes text for a quoted string in CSS.
func cssString(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ':
			fmt.Fprintf(&b, `\%x `, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func digits(s string) bool {
	for _, r := range s {
		if r < '0' || r > '9' {
			return false
		}
	}
	return s != ""
}

func runeLen(s string) int {
	for i := range s {
		if i > 0 {
			return i
		}
	}
	return len(s)
}
