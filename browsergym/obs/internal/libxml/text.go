package libxml

import (
	"strings"
	"unicode/utf8"
)

// inRaw reports whether the content of the current element is not parsed.
func (p *parser) inRaw() bool {
	if len(p.open) == 0 {
		return false
	}
	id := p.open[len(p.open)-1].id
	return id == tagScript || id == tagStyle
}

// raw reads the content of a script or style up to an end tag whose name starts with the element's
// name. (htmlParseScript)
func (p *parser) raw() {
	name := p.name(p.open[len(p.open)-1].id)
	from := p.i
	for p.i < p.end {
		k := strings.Index(p.s[p.i:p.end], "</")
		if k < 0 {
			p.i = p.end
			break
		}
		p.i += k
		if e := p.i + 2 + len(name); e <= p.end && strings.EqualFold(p.s[p.i+2:e], name) {
			break
		}
		p.i += 2
	}
	p.work += p.i - from
	if s := clean(p.s[from:p.i]); s != "" {
		p.soup.data(s)
	}
}

// text reads text up to < or &. (htmlParseCharDataInternal)
func (p *parser) text() {
	from := p.i
	k := strings.IndexAny(p.s[p.i:p.end], "<&")
	if k < 0 {
		k = p.end - p.i
	}
	stop := p.i + k
	for p.needsParagraph() && p.i < stop {
		// It is passed on in parts; each part is checked separately for being white space only.
		n := 0
		blank := true
		for p.i < stop && n < textBuffer {
			c := p.s[p.i]
			l := utf8Len(c)
			if isChar(p.s[p.i : p.i+l]) {
				n += l
				blank = blank && (isBlank(c) || c == 0)
			}
			p.i += l
		}
		if n > 0 && !(blank && p.blankIsIgnored()) {
			p.paragraph()
		}
		if s := clean(p.s[from:p.i]); s != "" {
			p.soup.data(s)
		}
		from = p.i
	}
	p.i = stop
	if s := clean(p.s[from:stop]); s != "" {
		p.soup.data(s)
	}
}

// blankIsIgnored reports whether white space before this position does not need a paragraph.
// (areBlanks, without a tree)
func (p *parser) blankIsIgnored() bool { return p.cur() == 0 || p.cur() == '<' }

// reference reads a reference in text. An invalid one is dropped. (htmlParseReference)
func (p *parser) reference() {
	if p.at(p.i+1) == '#' {
		if r := p.charRef(); r != 0 {
			p.paragraph()
			p.soup.data(string(r))
		}
		return
	}
	from := p.i
	r, name := p.entityRef()
	p.paragraph()
	switch {
	case r != 0:
		p.soup.data(string(r))
	case name == "":
		p.soup.data("&")
	default:
		p.soup.data(p.s[from:p.i])
	}
}

// charRef reads a numeric reference, with or without its semicolon. It returns 0 if XML does not
// allow the character. (htmlParseCharRef)
func (p *parser) charRef() rune {
	p.i += 2
	base := rune(10)
	if p.cur()|0x20 == 'x' {
		p.i++
		base = 16
	}
	var v rune
	for {
		d := digit(p.cur())
		if d >= base {
			break
		}
		if v < 0x110000 {
			v = v*base + d
		}
		p.i++
	}
	if p.cur() == ';' {
		p.i++
	}
	if !isXML(v) {
		return 0
	}
	return v
}

func digit(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return rune(c|0x20-'a') + 10
	}
	return 99
}

// entityRef reads a named reference, which must have its semicolon and be defined in HTML 4.
// Otherwise r is 0 and name is the text kept after the &; the semicolon is not read.
// (htmlParseEntityRef)
func (p *parser) entityRef() (r rune, name string) {
	p.i++
	if name = p.anyName(); name == "" {
		return 0, ""
	}
	if p.cur() == ';' {
		if r = entities[name]; r != 0 {
			p.i++
		}
	}
	return r, name
}

// anyName reads a name that may contain non-ASCII letters. (htmlParseName, htmlParseNameComplex)
func (p *parser) anyName() string {
	from, i := p.i, p.i
	if c := p.at(i); isLetter(c) || c == '_' || c == ':' {
		for i++; isNameByte(p.at(i)); i++ {
		}
		if i == p.end {
			return ""
		}
		if c := p.s[i]; c > 0 && c < utf8.RuneSelf {
			p.i = i
			return p.s[from:i]
		}
	}
	r, n := p.rune(from)
	if !isXMLLetter(r) && r != '_' && r != ':' {
		return ""
	}
	for i = from; isXMLLetter(r) || r == '.' || r == '-' || r == '_' || r == ':' || isXMLNameMore(r); r, n = p.rune(i) {
		i += n
		if i-from > maxName {
			p.i = i - n
			return ""
		}
	}
	p.i = i
	return p.s[from:i]
}

func (p *parser) rune(i int) (rune, int) { return utf8.DecodeRuneInString(p.s[i:p.end]) }
