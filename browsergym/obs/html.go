package obs

import (
	"html"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/browsergym/py"
)

// The HTML of texts is parsed as libxml2 does it and printed as Beautiful Soup does, which is not what browsers do: see the rules in the tests.

type htmlNode struct {
	tag    string // "" is text
	text   string
	attrs  []htmlAttr
	kids   []*htmlNode
	parent *htmlNode
}

type htmlAttr struct{ name, value string }

// voidTags never have content for the parser: their end tags are ignored.
var voidTags = set("area base basefont br col frame hr img input isindex link meta param")

// set is of the words of a text.
func set(names string) map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(names) {
		m[n] = true
	}
	return m
}

// closedBy lists which open elements a start tag ends, when one of them is the element that it would be in.
var closedBy = func() map[string]map[string]bool {
	m := map[string]map[string]bool{}
	add := func(starts, ends string) {
		for _, s := range strings.Fields(starts) {
			if m[s] == nil {
				m[s] = map[string]bool{}
			}
			for _, e := range strings.Fields(ends) {
				m[s][e] = true
			}
		}
	}
	add("address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li main menu nav ol p pre section table ul xmp listing", "p")
	add("p", "h1 h2 h3 h4 h5 h6")
	add("a", "a")
	add("form", "form")
	add("li", "li")
	add("dt dd", "dt dd")
	add("option optgroup", "option")
	add("tr", "tr td th")
	add("td th", "td th")
	add("tbody thead tfoot", "tbody thead tfoot tr td th")
	add("body", "head")
	return m
}()

var listAttrs = map[string]map[string]bool{
	"class": nil, "accesskey": nil, "dropzone": nil,
	"rel": set("a link area"), "rev": set("a link"), "headers": set("td th"), "accept-charset": set("form"), "archive": set("object"),
	"sizes": set("icon"), "sandbox": set("iframe"), "for": set("output"),
}

// maxOpen bounds how deep elements are nested, as libxml2 does; deeper ones stand beside one another.
const maxOpen = 256

// A htmlParser is at work on one text.
type htmlParser struct {
	s    string
	i    int
	root *htmlNode
	open []*htmlNode // root first
	html *htmlNode
	head bool
	body *htmlNode
	lost int    // start tags of html, head and body that were there already: their end tags are ignored, too
	over bool   // html has ended, and with it the document
	text []byte // not yet a node
}

func parseHTML(s string) *htmlNode {
	p := &htmlParser{s: s, root: &htmlNode{}}
	p.open = []*htmlNode{p.root}
	p.run()
	p.flush()
	return p.root
}

func (p *htmlParser) top() *htmlNode { return p.open[len(p.open)-1] }

func (p *htmlParser) push(n *htmlNode) {
	t := p.top()
	n.parent = t
	t.kids = append(t.kids, n)
	p.open = append(p.open, n)
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func (p *htmlParser) run() {
	for p.i < len(p.s) && !p.over {
		j := strings.IndexByte(p.s[p.i:], '<')
		if j < 0 {
			p.text = append(p.text, p.s[p.i:]...)
			return
		}
		p.text = append(p.text, p.s[p.i:p.i+j]...)
		p.i += j
		rest := p.s[p.i:]
		switch {
		case len(rest) > 1 && isLetter(rest[1]):
			p.start()
		case strings.HasPrefix(rest, "</"):
			p.end()
		case strings.HasPrefix(rest, "<!--"):
			if k := strings.Index(rest[4:], "-->"); k >= 0 {
				p.i += 4 + k + 3
			} else {
				p.i = len(p.s)
			}
		case strings.HasPrefix(rest, "<!") || strings.HasPrefix(rest, "<?"):
			if k := strings.IndexByte(rest, '>'); k >= 0 {
				p.i += k + 1
			} else {
				p.i = len(p.s)
			}
		default:
			p.i++
			if p.body == nil && !inside(p.open, "head") { // it is put where it stands, and no paragraph is made for it
				p.flush()
				p.add("<")
				continue
			}
			p.text = append(p.text, '<')
		}
	}
}

// flush makes a node of the text that was read.
func (p *htmlParser) flush() {
	if len(p.text) == 0 {
		return
	}
	s := string(p.text)
	p.text = p.text[:0]
	blank := strings.TrimLeft(s, " \t\n\r") == ""
	if p.body == nil && !inside(p.open, "head") {
		if blank {
			return
		}
		p.implied("p")
		p.push(&htmlNode{tag: "p"})
	}
	p.add(unescape(s))
}

// add puts text into the element that is open.
func (p *htmlParser) add(s string) {
	t := p.top()
	if n := len(t.kids); n > 0 && t.kids[n-1].tag == "" {
		t.kids[n-1].text += s
		return
	}
	t.kids = append(t.kids, &htmlNode{text: s, parent: t})
}

func inside(open []*htmlNode, tag string) bool {
	return slices.ContainsFunc(open, func(n *htmlNode) bool { return n.tag == tag })
}

func unescape(s string) string {
	if strings.IndexByte(s, '&') < 0 {
		return s
	}
	return html.UnescapeString(s)
}

var headTags = set("script style meta link title base head")

// implied opens html, and head or body, where the markup has not.
func (p *htmlParser) implied(tag string) {
	if p.html == nil && tag != "html" {
		p.html = &htmlNode{tag: "html"}
		p.push(p.html)
	}
	if tag == "html" || tag == "body" || tag == "frameset" || tag == "head" || p.body != nil {
		return
	}
	if headTags[tag] {
		if !p.head {
			p.head = true
			p.push(&htmlNode{tag: "head"})
		}
		return
	}
	if inside(p.open, "head") || tag == "noframes" {
		return
	}
	p.body = &htmlNode{tag: "body"}
	p.push(p.body)
}

func (p *htmlParser) name() string {
	j := p.i
	for j < len(p.s) {
		c := p.s[j]
		if !isLetter(c) && (c < '0' || c > '9') && c != ':' && c != '-' && c != '_' && c != '.' && c < 0x80 {
			break
		}
		j++
	}
	n := strings.ToLower(p.s[p.i:j])
	p.i = j
	return n
}

// start reads a start tag.
func (p *htmlParser) start() {
	p.i++
	tag := p.name()
	attrs := p.attributes(tag)
	closed := false
	if strings.HasPrefix(p.s[p.i:], "/>") {
		closed = true
		p.i += 2
	} else if p.i < len(p.s) && p.s[p.i] == '>' {
		p.i++
	}
	p.flush()
	if tag == "html" && p.html != nil || tag == "head" && (p.head || p.body != nil) || tag == "body" && p.body != nil {
		p.lost++
		return
	}
	for len(p.open) > 1 && closedBy[tag][p.top().tag] {
		p.open = p.open[:len(p.open)-1]
	}
	if t := p.top().tag; t == "head" && !headTags[tag] && tag != "noscript" && tag != "template" && tag != "object" {
		p.open = p.open[:len(p.open)-1]
	}
	p.implied(tag)
	n := &htmlNode{tag: tag, attrs: attrs}
	switch tag {
	case "html":
		p.html = n
	case "head":
		p.head = true
	case "body":
		p.body = n
	}
	p.push(n)
	if closed || voidTags[tag] || len(p.open) > maxOpen {
		p.open = p.open[:len(p.open)-1]
		return
	}
	if tag == "script" || tag == "style" {
		p.raw(n)
	}
}

// raw reads the content of a script or style, up to the end tag.
func (p *htmlParser) raw(n *htmlNode) {
	j := p.i
	for {
		k := strings.Index(p.s[j:], "</")
		if k < 0 {
			j = len(p.s)
			break
		}
		j += k
		if len(p.s) >= j+2+len(n.tag) && strings.EqualFold(p.s[j+2:j+2+len(n.tag)], n.tag) {
			break
		}
		j += 2
	}
	if j > p.i {
		n.kids = append(n.kids, &htmlNode{text: p.s[p.i:j], parent: n})
	}
	p.i = j
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' }

func (p *htmlParser) attributes(tag string) []htmlAttr {
	var out []htmlAttr
	for p.i < len(p.s) {
		for p.i < len(p.s) && space(p.s[p.i]) {
			p.i++
		}
		if p.i >= len(p.s) || p.s[p.i] == '>' || strings.HasPrefix(p.s[p.i:], "/>") {
			return out
		}
		c := p.s[p.i]
		if !isLetter(c) && c != '_' && c != ':' && c != '.' && c < 0x80 {
			// What is no name is skipped up to the next white space or the tag's end.
			for p.i < len(p.s) && !space(p.s[p.i]) && p.s[p.i] != '>' && !strings.HasPrefix(p.s[p.i:], "/>") {
				p.i++
			}
			continue
		}
		name := p.name()
		value := ""
		j := p.i
		for j < len(p.s) && space(p.s[j]) {
			j++
		}
		if j < len(p.s) && p.s[j] == '=' {
			p.i = j + 1
			for p.i < len(p.s) && space(p.s[p.i]) {
				p.i++
			}
			value = p.value()
		}
		if slices.ContainsFunc(out, func(a htmlAttr) bool { return a.name == name }) {
			continue
		}
		if tags, ok := listAttrs[name]; ok && (tags == nil || tags[tag]) {
			value = strings.Join(strings.FieldsFunc(value, py.IsSpace), " ")
		}
		out = append(out, htmlAttr{name, value})
	}
	return out
}

func (p *htmlParser) value() string {
	if p.i >= len(p.s) {
		return ""
	}
	if q := p.s[p.i]; q == '"' || q == '\'' {
		p.i++
		j := strings.IndexByte(p.s[p.i:], q)
		if j < 0 {
			j = len(p.s) - p.i
		}
		v := p.s[p.i : p.i+j]
		p.i = min(p.i+j+1, len(p.s))
		return unescape(v)
	}
	j := p.i
	for j < len(p.s) && !space(p.s[j]) && p.s[j] != '>' && !strings.HasPrefix(p.s[j:], "/>") {
		j++
	}
	v := p.s[p.i:j]
	p.i = j
	return unescape(v)
}

// end reads an end tag.
func (p *htmlParser) end() {
	p.i += 2
	if p.i < len(p.s) && !isLetter(p.s[p.i]) { // no tag at all
		if k := strings.IndexByte(p.s[p.i:], '>'); k >= 0 {
			p.i += k + 1
		} else {
			p.i = len(p.s)
		}
		return
	}
	tag := p.name()
	if k := strings.IndexByte(p.s[p.i:], '>'); k >= 0 {
		p.i += k + 1
	} else {
		p.i = len(p.s)
	}
	if tag == "html" || tag == "head" || tag == "body" {
		if p.lost > 0 {
			p.lost--
			return
		}
	}
	p.flush()
	rank := endRank(tag)
	for k := len(p.open) - 1; k > 0; k-- {
		if p.open[k].tag == tag {
			p.open = p.open[:k]
			p.over = tag == "html"
			return
		}
		if endRank(p.open[k].tag) > rank { // a stray end tag does not reach beyond
			return
		}
	}
}

// endRank orders elements by how much it takes to end them.
func endRank(tag string) int {
	switch tag {
	case "div":
		return 1
	case "td", "th":
		return 2
	case "tr":
		return 3
	case "thead", "tbody", "tfoot":
		return 4
	case "table":
		return 5
	case "head", "body":
		return 6
	case "html":
		return 7
	}
	return 0
}
