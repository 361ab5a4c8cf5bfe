package libxml

import "strings"

// advance reads one character or line end. (xmlNextChar)
func (p *parser) advance() {
	if p.i >= p.end {
		return
	}
	c := p.s[p.i]
	p.i += utf8Len(c)
	if c == '\r' && p.cur() == '\n' {
		p.i++
	}
}

// blanks reads white space. (htmlSkipBlankChars)
func (p *parser) blanks() {
	for isBlank(p.cur()) {
		p.i++
	}
}

func (p *parser) has(s string) bool { return strings.HasPrefix(p.s[p.i:p.end], s) }

func (p *parser) hasFold(s string) bool {
	return p.end-p.i >= len(s) && strings.EqualFold(p.s[p.i:p.i+len(s)], s)
}

// lowerName reads the name of an element or attribute in lower case, up to maxTag bytes.
// (htmlParseHTMLName)
func (p *parser) lowerName() (string, bool) {
	c := p.cur()
	if !isLetter(c) && c != '_' && c != ':' && c != '.' {
		return "", false
	}
	from := p.i
	upper := false
	for p.i-from < maxTag && isNameByte(p.cur()) {
		c := p.s[p.i]
		upper = upper || c >= 'A' && c <= 'Z'
		p.i++
	}
	if upper {
		return strings.ToLower(p.s[from:p.i]), true
	}
	return p.s[from:p.i], true
}

func (p *parser) tagName() (tagID, bool) {
	name, ok := p.lowerName()
	if !ok {
		return 0, false
	}
	if id, ok := tagIDs[name]; ok {
		return id, true
	}
	id, ok := p.names[name]
	if !ok {
		if p.names == nil {
			p.names = map[string]tagID{}
		}
		id = tagID(len(p.latest))
		p.names[name] = id
		p.latest = append(p.latest, -1)
		p.soup.names = append(p.soup.names, name)
	}
	return id, true
}

func (p *parser) name(id tagID) string {
	if int(id) < len(tags) {
		return tags[id].name
	}
	return p.soup.names[int(id)-len(tags)]
}

// next searches for c; at is where it was found or searched before. (htmlParseLookupSequence)
func (p *parser) next(at *int, c byte) bool {
	*at = max(*at, p.i)
	if *at < p.end && p.s[*at] == c {
		return true
	}
	k := strings.IndexByte(p.s[*at:p.end], c)
	if k < 0 {
		p.work += p.end - *at
		*at = p.end
		return false
	}
	p.work += k
	*at += k
	return true
}

// nextEnd searches for the start of an end tag.
func (p *parser) nextEnd() bool {
	p.slash = max(p.slash, p.i)
	k := strings.Index(p.s[p.slash:p.end], "</")
	if k < 0 {
		p.work += p.end - p.slash
		p.slash = max(p.slash, p.end-1)
		return false
	}
	p.work += k
	p.slash += k
	return true
}

// tagEnds searches for a > outside of quotes, as the parser does before it reads a tag, which may
// then end elsewhere.
func (p *parser) tagEnds() bool {
	p.special = max(p.special, p.i)
	p.special = p.nextSpecial(p.special)
	if p.quotes == nil {
		p.quotes = make([]uint64, len(p.s)/64+1)
	}
	for i := p.special; i < p.end; {
		if p.s[i] == '>' {
			return true
		}
		// Every search that reaches this quote continues in the same way.
		w, bit := i/64, uint64(1)<<(i%64)
		if p.quotes[w]&bit != 0 {
			return true
		}
		p.quotes[w] |= bit
		k := strings.IndexByte(p.s[i+1:p.end], p.s[i])
		if k < 0 {
			p.work += p.end - i
			break
		}
		p.work += k + 2
		i = p.nextSpecial(i + k + 2)
	}
	clear(p.quotes)
	return false
}

// nextSpecial returns the position of the next quote or >.
func (p *parser) nextSpecial(i int) int {
	from := i
	for i < p.end {
		if c := p.s[i]; c == '>' || c == '"' || c == '\'' {
			break
		}
		i++
	}
	p.work += i - from
	return i
}

// commentEnds searches for the end of a comment. The comment may turn out not to end there.
// (htmlParseLookupCommentEnd)
func (p *parser) commentEnds() bool {
	l := &p.sought
	if l.at != p.i || l.from < p.i {
		l.at, l.from = p.i, p.i
	}
	for {
		k := strings.Index(p.s[l.from:p.end], "--")
		if k < 0 {
			p.work += p.end - l.from
			l.from = max(l.from, p.end-1)
			return false
		}
		p.work += k + 1
		l.from += k
		if c := p.at(l.from + 2); c == '>' || c == '!' && p.at(l.from+3) == '>' {
			return true
		} else if c == '!' && l.from+3 >= p.end || l.from+2 >= p.end {
			return false
		}
		l.from++
	}
}
