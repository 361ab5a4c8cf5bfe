// Package html2text converts a page's HTML to Markdown for agents that have opened an address. It
// keeps links, headings, lists, emphasis and tables, drops pictures, scripts and styles, and does
// not wrap lines.
//
// The output equals that of the Python library html2text with these settings, including its layout
// errors, because published agents have read that text.
package html2text

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// Convert returns the text of a page, in time linear in the page's length.
func Convert(html string) string {
	p := &printer{fresh: true}
	scan(html, p)
	if p.quiet == 0 {
		p.emit("\n")
		if p.preBegins { // the page ended with an empty pre
			p.emit("\n")
		}
	}
	for _, a := range p.abbrs {
		p.emit("  *[" + a[0] + "]: " + a[1] + "\n")
	}
	return string(p.out)
}

// maxNest limits the prefix of each line. With unlimited nesting a page of n bytes could have a
// text of n² bytes.
const maxNest = 100

// A list is an open list.
type list struct {
	ordered bool
	number  int // of the last item
}

// A link is an open link.
type link struct {
	href, title string
	real        bool // it leads to another page
}

// printer holds the text so far and what is pending before the next piece.
type printer struct {
	out   []byte
	quiet int // depth inside head, style and script

	breaks int    // pending line breaks
	soft   string // end of a line with a soft line break
	gap    bool   // a space is pending
	fresh  bool   // at the start, where neither line breaks nor spaces are written
	ended  bool   // the last piece ended its line

	quotes    int
	lists     []list
	wasList   bool // the last tag was that of a list
	pre       bool
	preBegins bool
	code      bool

	links  []link
	opened bool   // the bracket of the innermost link has not been written yet
	empty  bool   // nothing was written in the link
	tag    string // last tag that began or ended

	strong bool // emphasis has just begun; outer white space of the next text is removed
	weak   bool // emphasized text came last; a space follows it
	before rune // last character of text; 0 if there is none

	table  bool    // the first row is not finished
	cells  int     // number of cells in the first row
	inRow  bool    // this row already has a cell
	abbr   *[]byte // text of the open abbreviation
	abbrs  [][2]string
	abbrOf string
}

func (p *printer) emit(s string) { p.out = append(p.out, s...) }

// put writes a piece of markup. quote says that it is part of a block quote.
func (p *printer) put(s string, quote bool) {
	if p.quiet != 0 || s == "" { // below 0 after an unmatched end tag, as in the original
		return
	}
	bq := strings.Repeat(">", min(p.quotes, maxNest))
	if p.quotes > 0 && !(quote && s[0] == '>') {
		bq += " "
	}
	if p.preBegins && !strings.HasPrefix(s, "\n") {
		s = "\n" + s
	}
	if p.pre {
		bq += strings.Repeat("    ", max(1, min(len(p.lists), maxNest)))
		s = strings.ReplaceAll(s, "\n", "\n"+bq)
	}
	if p.preBegins {
		p.preBegins = false
		if len(p.lists) > 0 {
			s = strings.TrimLeft(s, "\n")
		}
	}
	if p.fresh {
		p.gap, p.breaks, p.fresh = false, 0, false
	}
	if p.breaks > 0 {
		for range p.breaks {
			p.emit(p.soft + "\n" + bq)
		}
		p.gap, p.soft = false, ""
	}
	if p.gap {
		if !p.ended {
			p.emit(" ")
		}
		p.gap = false
	}
	p.breaks = 0
	p.emit(s)
	p.ended = strings.HasSuffix(s, "\n")
}

func (p *printer) mark(s string) {
	p.name(s)
	p.put(s, false)
}

// name appends s to the text of the open abbreviation.
func (p *printer) name(s string) {
	if p.abbr != nil && p.quiet == 0 {
		*p.abbr = append(*p.abbr, s...)
	}
}

// words writes text. Outside of pre it collapses white space.
func (p *printer) words(s string) {
	p.name(s)
	if !p.pre {
		s = collapse(s)
		if strings.HasPrefix(s, " ") {
			if p.quiet == 0 {
				p.gap = true
			}
			s = s[1:]
		}
	}
	p.put(s, false)
}

func (p *printer) paragraph() { p.breaks = 2 }

func (p *printer) newline() {
	if p.breaks == 0 {
		p.breaks = 1
	}
}

func (p *printer) text(s string)   { p.data(s, true) }
func (p *printer) entity(s string) { p.data(s, false) }

func (p *printer) data(s string, escape bool) {
	if s == "" {
		return
	}
	switch {
	case p.strong:
		s = pyrepr.Strip(s)
		p.strong, p.weak = false, true
	case p.weak:
		first, _ := utf8.DecodeRuneInString(s)
		if !pyrepr.IsSpace(first) && !strings.ContainsRune("][(){}.!?", first) && !closeUp[p.tag] {
			s = " " + s
		}
		p.weak = false
	}
	if p.opened {
		if href := p.links[len(p.links)-1].href; s == href && absolute(href) {
			p.mark("<" + s + ">")
			p.empty = false
			return
		}
		p.bracket()
	}
	if escape && !p.code && !p.pre {
		s = escapeText(s)
	}
	if !escape && s == "\u00a0" { // keep non-breaking spaces
		p.before = ' '
		p.mark(" ")
		return
	}
	p.before = 0
	if s != "" {
		p.before, _ = utf8.DecodeLastRuneInString(s)
	}
	p.words(s)
}

// closeUp lists the tags after which text follows without a space.
var closeUp = map[string]bool{"a": true, "code": true, "pre": true, "h1": true, "h2": true, "h3": true, "h4": true,
	"h5": true, "h6": true}

// bracket begins the text of the innermost link.
func (p *printer) bracket() {
	p.mark("[")
	p.opened, p.empty = false, false
}

// emphasis begins or ends emphasis. apart reports which preceding characters need a space after
// them.
func (p *printer) emphasis(mark string, begins bool, apart func(rune) bool) {
	if begins && p.before != 0 && apart(p.before) {
		mark = " " + mark
		p.before = ' '
	}
	p.mark(mark)
	if begins {
		p.strong = true
	}
}

func (p *printer) beginLink(attrs map[string]string) {
	href, ok := attrs["href"]
	l := link{href: href, title: attrs["title"], real: ok && !strings.HasPrefix(href, "#")}
	p.links = append(p.links, l)
	if l.real {
		p.opened, p.empty = true, true
	}
}

func (p *printer) endLink() {
	n := len(p.links)
	if n == 0 {
		return
	}
	l := p.links[n-1]
	p.links = p.links[:n-1]
	if p.opened && !p.empty { // the link's text was its own address
		p.opened = false
		return
	}
	if !l.real {
		return
	}
	if p.empty {
		p.mark("[")
		p.opened, p.empty = false, false
	}
	p.breaks = 0
	title := ""
	if l.title != "" {
		title = ` "` + escapeAll(l.title) + `"`
	}
	p.mark("](" + escapeAll(l.href) + title + ")")
}

func (p *printer) item() {
	p.newline()
	p.mark(strings.Repeat("  ", min(len(p.lists), maxNest)) + strings.Repeat(" ", p.underOrdered()))
	if n := len(p.lists); n > 0 && p.lists[n-1].ordered {
		p.lists[n-1].number++
		p.mark(strconv.Itoa(p.lists[n-1].number) + ". ")
	} else {
		p.mark("* ")
	}
	p.fresh = true
}

// underOrdered counts the bulleted lists inside numbered lists, which are indented one column
// further.
func (p *printer) underOrdered() int {
	n := 0
	for i := 1; i < min(len(p.lists), maxNest); i++ {
		if p.lists[i-1].ordered && !p.lists[i].ordered {
			n++
		}
	}
	return n
}
