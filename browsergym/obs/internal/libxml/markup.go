package libxml

import (
	"strings"
	"unicode/utf8"
)

// comment reads a comment once it has arrived completely.
func (p *parser) comment() bool {
	if !p.last && !p.commentEnds() {
		return false
	}
	p.readComment()
	return true
}

// instruction reads a processing instruction, which ends at the first >. If it has no name, only
// its <? is dropped. (htmlParsePI)
func (p *parser) instruction() bool {
	if !p.last && !p.next(&p.gt, '>') {
		return false
	}
	p.i += 2
	target := p.anyName()
	if target == "" {
		return true
	}
	if p.cur() == '>' {
		p.i++
		p.soup.special(Instruction, target+" ")
		return true
	}
	p.blanks()
	from := p.i
	k := strings.IndexByte(p.s[p.i:p.end], '>')
	if k < 0 {
		p.i = p.end
		if s := clean(p.s[from:p.i]); len(s) > maxText {
			p.i = cutAt(p.s[from:p.i]) + from
		}
		return true
	}
	p.i += k
	s := clean(p.s[from:p.i])
	if len(s) > maxText {
		p.i = cutAt(p.s[from:p.i]) + from
		return true
	}
	p.i++
	p.soup.special(Instruction, target+" "+s)
	return true
}

// cutAt returns where reading stops in a text that is too long: at the first character that makes
// the kept text longer than maxText bytes.
func cutAt(s string) int {
	kept := 0
	for i, r := range s {
		if isXML(r) || r == 0 {
			kept += utf8.RuneLen(r)
		}
		if kept > maxText {
			return i
		}
	}
	return len(s)
}

// readComment reads a comment. An unterminated comment is dropped with the rest of the available
// input. (htmlParseComment)
func (p *parser) readComment() {
	p.i += 4
	from := p.i
	for _, abrupt := range []string{">", "->"} {
		if p.has(abrupt) {
			p.i += len(abrupt)
			p.soup.special(Comment, "")
			return
		}
	}
	for i := p.i; ; i++ {
		k := strings.Index(p.s[i:p.end], "--")
		if k < 0 {
			break
		}
		i += k
		n := 0
		switch {
		case p.at(i+2) == '>':
			n = 3
		case p.at(i+2) == '!' && p.at(i+3) == '>':
			n = 4
		default:
			continue
		}
		s := clean(p.s[from:i])
		if len(s) > maxText {
			p.cutComment(i)
			return
		}
		p.i = i + n
		p.soup.special(Comment, s)
		return
	}
	if p.end-from > maxText {
		p.cutComment(p.end)
		return
	}
	p.i = p.end
}

// cutComment reads a comment that is too long up to where the original, which reads three
// characters ahead, gives up.
func (p *parser) cutComment(end int) {
	p.i += cutAt(p.s[p.i:end])
	for range 3 {
		p.i = min(p.end, p.i+utf8Len(p.cur()))
	}
}

// bogusComment skips an invalid declaration. (htmlSkipBogusComment)
func (p *parser) bogusComment() { p.skipPast('>') }

func (p *parser) isDoctype() bool {
	return p.end-p.i >= 9 && p.s[p.i] == '<' && strings.EqualFold(p.s[p.i+1:p.i+9], "!doctype")
}

// doctype reads a document type declaration. (htmlParseDocTypeDecl, htmlParseExternalID)
func (p *parser) doctype() {
	p.i += 9
	p.blanks()
	text := p.anyName()
	p.blanks()
	switch {
	case p.hasFold("SYSTEM"):
		p.i += 6
		p.blanks()
		if s, ok := p.literal(isChar8); ok {
			text += ` SYSTEM "` + s + `"`
		}
	case p.hasFold("PUBLIC"):
		p.i += 6
		p.blanks()
		public, isPublic := p.literal(isPublic)
		p.blanks()
		system, isSystem := "", false
		if c := p.cur(); c == '"' || c == '\'' {
			system, isSystem = p.literal(isChar8)
		}
		// Doctype._string_for_name_and_ids
		switch {
		case isPublic && isSystem:
			text += ` PUBLIC "` + public + `" "` + system + `"`
		case isPublic:
			text += ` PUBLIC "` + public + `"`
		case isSystem:
			text += ` SYSTEM "` + system + `"`
		}
	}
	p.blanks()
	p.skipPast('>')
	p.soup.special(Doctype, text)
}

// literal reads a quoted identifier. Its length is counted in characters and applied in bytes. If
// this cuts within a character, the original rejects the whole page. (htmlParseSystemLiteral,
// htmlParsePubidLiteral)
func (p *parser) literal(good func(byte) bool) (s string, ok bool) {
	q := p.cur()
	if q != '"' && q != '\'' {
		return "", false
	}
	p.i++
	from, n := p.i, 0
	ok = true
	for c := p.cur(); c != 0 && c != q; c = p.cur() {
		ok = ok && good(c)
		p.advance()
		n++
	}
	if p.cur() != q {
		return "", false
	}
	p.i++
	return strings.ToValidUTF8(p.s[from:from+n], "\ufffd"), ok
}
