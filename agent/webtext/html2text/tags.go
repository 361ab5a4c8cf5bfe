package html2text

import (
	"strings"
	"unicode"
)

func (p *printer) start(tag string, attrs map[string]string) { p.handle(tag, attrs, true) }
func (p *printer) end(tag string)                            { p.handle(tag, nil, false) }

func (p *printer) handle(tag string, attrs map[string]string, begins bool) {
	p.tag = tag
	if begins && p.opened && tag != "p" && tag != "div" && tag != "style" && tag != "dl" && tag != "dt" {
		p.bracket()
	}
	wasList := p.wasList
	p.wasList = false
	switch tag {
	case "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9":
		p.heading(int(tag[1]-'0'), begins)
	case "p", "div":
		if len(p.links) == 0 && !p.inRow {
			p.paragraph()
		}
	case "br":
		if begins {
			if p.quotes > 0 {
				p.mark("  \n> ")
			} else {
				p.mark("  \n")
			}
		}
	case "hr":
		if begins {
			p.paragraph()
			p.mark("* * *")
			p.paragraph()
		}
	case "head", "style", "script":
		if begins {
			p.quiet++
		} else {
			p.quiet--
		}
	case "body":
		p.quiet = 0
	case "blockquote":
		if begins {
			p.paragraph()
			p.put("> ", true)
			p.fresh = true
			p.quotes++
		} else {
			p.quotes = max(p.quotes-1, 0)
			p.paragraph()
		}
	case "em", "i", "u":
		p.emphasis("_", begins, func(r rune) bool {
			return r > unicode.MaxASCII || unicode.IsLetter(r) || unicode.IsDigit(r)
		})
	case "strong", "b":
		p.emphasis("**", begins, func(r rune) bool { return r == '*' })
	case "del", "strike", "s":
		p.emphasis("~~", begins, func(r rune) bool { return r == '~' })
	case "kbd", "code", "tt":
		if !p.pre {
			p.mark("`")
			p.code = !p.code
		}
	case "abbr":
		p.abbreviation(attrs, begins)
	case "q":
		p.mark(`"`)
	case "a":
		if begins {
			p.beginLink(attrs)
		} else {
			p.endLink()
		}
	case "dl":
		if begins {
			p.paragraph()
		}
	case "dt":
		if !begins {
			p.newline()
		}
	case "dd":
		if begins {
			p.mark("    ")
		} else {
			p.newline()
		}
	case "ol", "ul":
		p.wasList = true
		if begins {
			if len(p.lists) == 0 && !wasList {
				p.paragraph()
			}
			l := list{ordered: tag == "ol"}
			if n, ok := number(attrs["start"]); ok {
				l.number = n - 1
			}
			p.lists = append(p.lists, l)
		} else if n := len(p.lists); n > 0 {
			p.lists = p.lists[:n-1]
			if n == 1 {
				p.mark("\n")
			}
		}
	case "li":
		if begins {
			p.item()
		} else {
			p.newline()
		}
	case "table":
		if begins {
			p.table = true
		}
	case "tr":
		if begins {
			p.cells = 0
			break
		}
		p.inRow = false
		p.softBreak()
		if p.table {
			p.mark(strings.TrimSuffix(strings.Repeat("---|", p.cells), "|"))
			p.softBreak()
			p.table = false
		}
	case "td", "th":
		if begins {
			if p.inRow {
				p.mark("| ")
			}
			p.inRow = true
			if p.table {
				p.cells++
			}
		}
	case "pre":
		p.pre, p.preBegins = begins, begins || p.preBegins
		p.paragraph()
	}
}

func (p *printer) softBreak() {
	p.newline()
	p.soft = "  "
}

// heading begins or ends a heading. Inside a link its hashes come before the link's bracket.
func (p *printer) heading(n int, begins bool) {
	hashes := strings.Repeat("#", n) + " "
	if len(p.links) == 0 {
		p.paragraph()
		if begins {
			p.mark(hashes)
		}
		return
	}
	if !begins {
		p.breaks = 0
		return
	}
	if n := len(p.out); n > 0 && p.out[n-1] == '[' {
		p.out = p.out[:n-1]
		p.gap = false
		p.mark(hashes)
		p.mark("[")
	}
}

func (p *printer) abbreviation(attrs map[string]string, begins bool) {
	if begins {
		if title, ok := attrs["title"]; ok {
			p.abbrOf, p.abbr = title, new([]byte)
		}
		return
	}
	if p.abbr != nil {
		p.abbrs = append(p.abbrs, [2]string{string(*p.abbr), p.abbrOf})
		p.abbr = nil
	}
}
