package libxml

import "unicode/utf8"

// startTag reads a start tag up to its end. (htmlParseStartTag)
func (p *parser) startTag() bool {
	p.i++
	id, ok := p.tagName()
	if !ok {
		for c := p.cur(); c != 0 && c != '>'; c = p.cur() {
			p.advance()
		}
		return false
	}
	p.autoClose(id)
	p.implied(id)
	ignored := false
	switch id {
	case tagHTML:
		ignored = len(p.open) > 0
	case tagHead:
		ignored = len(p.open) != 1
	case tagBody:
		ignored = p.latest[tagBody] >= 0
	}
	if ignored {
		p.lost++
	}
	p.readAttrs()
	if !ignored {
		p.push(id)
		p.soup.start(id, p.name(id), p.attrs)
	}
	return true
}

// readAttrs reads attributes up to > or />. The first of several attributes with one name counts.
// Invalid text is skipped up to white space.
func (p *parser) readAttrs() {
	p.attrs = p.attrs[:0]
	clear(p.attrNames)
	p.blanks()
	for c := p.cur(); c != 0 && c != '>' && !p.has("/>"); c = p.cur() {
		if name, ok := p.lowerName(); ok {
			value := ""
			p.blanks()
			if p.cur() == '=' {
				p.i++
				p.blanks()
				value = p.attrValue()
			}
			if !p.duplicate(name) {
				p.attrs = append(p.attrs, Attr{name, value})
			}
		} else {
			for c := p.cur(); c != 0 && !isBlank(c) && c != '>' && !p.has("/>"); c = p.cur() {
				p.advance()
			}
		}
		p.blanks()
	}
}

func (p *parser) duplicate(name string) bool {
	if len(p.attrs) <= fewAttrs {
		p.work += len(p.attrs)
		for i := range p.attrs {
			if p.attrs[i].Name == name {
				return true
			}
		}
		return false
	}
	p.work++
	if p.attrNames == nil {
		p.attrNames = map[string]bool{}
	}
	if len(p.attrNames) == 0 {
		for i := range p.attrs {
			p.attrNames[p.attrs[i].Name] = true
		}
	}
	if p.attrNames[name] {
		return true
	}
	p.attrNames[name] = true
	return false
}

// attrValue reads a value. A missing end quote is accepted. (htmlParseAttValue)
func (p *parser) attrValue() string {
	q := p.cur()
	if q != '"' && q != '\'' {
		return p.attrText(0)
	}
	p.i++
	v := p.attrText(q)
	if p.cur() == q {
		p.i++
	}
	return v
}

// attrText reads a value up to its quote, or up to white space or > if it has none. A reference to
// an invalid character ends the value. (htmlParseHTMLAttribute, whose result ends at a NUL byte)
func (p *parser) attrText(quote byte) string {
	var b []byte
	size, cut, from := 0, -1, p.i
	for {
		c := p.cur()
		if c == 0 || c == quote || quote == 0 && (c == '>' || isBlank(c)) {
			break
		}
		if c != '&' {
			n := utf8Len(c)
			p.i += n
			size += n
		} else {
			b = append(b, p.s[from:p.i]...)
			n := len(b)
			if p.at(p.i+1) == '#' {
				r := p.charRef()
				if r == 0 {
					b = append(b, 0)
				} else {
					b = utf8.AppendRune(b, r)
				}
				if r == 0 && cut < 0 {
					cut = n
				}
			} else {
				r, name := p.entityRef()
				if r != 0 {
					b = utf8.AppendRune(b, r)
				} else {
					b = append(append(b, '&'), name...)
				}
			}
			size += len(b) - n
			from = p.i
		}
		if size > maxText {
			return ""
		}
	}
	if b == nil {
		return p.s[from:p.i]
	}
	b = append(b, p.s[from:p.i]...)
	if cut >= 0 {
		b = b[:cut]
	}
	return string(b)
}

// endTag reads an end tag. If no name follows </, only the </ is dropped. (htmlParseEndTag)
func (p *parser) endTag() {
	if !p.has("</") {
		return
	}
	p.i += 2
	id, ok := p.tagName()
	if !ok {
		return
	}
	p.blanks()
	p.skipPast('>')
	if p.lost > 0 && (id == tagHTML || id == tagBody || id == tagHead) {
		p.lost--
		return
	}
	at := p.latest[id]
	if at < 0 {
		return
	}
	// An end tag does not end elements of higher priority. (htmlAutoCloseOnClose)
	for r := p.rank(id) + 1; r < ranks; r++ {
		if p.ranked[r] > at {
			return
		}
	}
	for len(p.open) > int(at) {
		p.work++
		p.closeTop()
	}
}

// skipPast skips everything up to and including c.
func (p *parser) skipPast(c byte) {
	for k := p.cur(); k != 0 && k != c; k = p.cur() {
		p.advance()
	}
	if p.cur() == c {
		p.i++
	}
}

// autoClose ends the elements that a start tag ends. (htmlAutoClose)
func (p *parser) autoClose(id tagID) {
	if int(id) >= len(tags) {
		return
	}
	for len(p.open) > 0 {
		top := p.open[len(p.open)-1].id
		if int(top) >= len(tags) || !tags[top].endedBy.has(id) {
			return
		}
		p.work++
		p.closeTop()
	}
}

// implied starts html, head and body if a start tag needs them. (htmlCheckImplied)
func (p *parser) implied(id tagID) {
	if id == tagHTML {
		return
	}
	if len(p.open) == 0 {
		p.start(tagHTML)
	}
	if id == tagBody || id == tagHead {
		return
	}
	if len(p.open) <= 1 {
		switch id {
		case tagScript, tagStyle, tagMeta, tagLink, tagTitle, tagBase:
			if p.seen < sawHead {
				p.start(tagHead)
			}
			return
		}
	}
	switch id {
	case tagNoframes, tagFrame, tagFrameset:
		return
	}
	if p.seen < sawBody && p.latest[tagBody] < 0 && p.latest[tagHead] < 0 {
		p.start(tagBody)
	}
}

// paragraph starts a paragraph for text directly in html or head, or outside of all elements.
// (htmlCheckParagraph)
func (p *parser) paragraph() {
	if p.needsParagraph() {
		p.autoClose(tagP)
		p.implied(tagP)
		p.start(tagP)
	}
}

func (p *parser) needsParagraph() bool {
	if len(p.open) == 0 {
		return true
	}
	id := p.open[len(p.open)-1].id
	return id == tagHTML || id == tagHead
}

func (p *parser) start(id tagID) {
	p.push(id)
	p.soup.start(id, p.name(id), nil)
}

// push opens an element. (htmlnamePush)
func (p *parser) push(id tagID) {
	switch {
	case id == tagHead && p.seen < sawHead:
		p.seen = sawHead
	case id == tagBody:
		p.seen = sawBody
	}
	n, r := int32(len(p.open)), p.rank(id)
	p.open = append(p.open, openTag{id: id, below: p.latest[id], belowRanked: p.ranked[r]})
	p.latest[id], p.ranked[r] = n, n
}

func (p *parser) pop() tagID {
	t := p.open[len(p.open)-1]
	p.open = p.open[:len(p.open)-1]
	p.latest[t.id], p.ranked[p.rank(t.id)] = t.below, t.belowRanked
	return t.id
}

func (p *parser) closeTop() { p.soup.finish(p.pop()) }

func (p *parser) rank(id tagID) int {
	if int(id) < len(tags) {
		return int(tags[id].rank)
	}
	return 0
}
