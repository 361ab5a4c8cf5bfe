// Package html2text turns a page's HTML into Markdown, as agents read it after they have opened an
// address: links and headings, lists, emphasis and tables are kept, pictures, scripts and styles
// are not, and lines are not wrapped.
//
// The text is the one that html2text makes with such settings, which published agents have read;
// its faults of layout are part of that.
package html2text

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// Convert returns the text of a page. Its time is linear in the page.
func Convert(html string) string {
	p := &printer{fresh: true}
	scan(html, p)
	if p.quiet == 0 {
		p.emit("\n")
		if p.preBegins { // an empty one came last
			p.emit("\n")
		}
	}
	for _, a := range p.abbrs {
		p.emit("  *[" + a[0] + "]: " + a[1] + "\n")
	}
	return string(p.out)
}

// maxNest bounds what stands before each line: nested deeper, a page of n bytes would have a text
// of n².
const maxNest = 100

// A list that is open.
type list struct {
	ordered bool
	number  int // of the last item
}

// A link that is open.
type link struct {
	href, title string
	real        bool // it goes somewhere else
}

// printer is the text so far, and what will stand before the next piece of it.
type printer struct {
	out   []byte
	quiet int // within head, style and script

	breaks int    // lines to be broken
	soft   string // what stands at the end of a line that is broken softly
	gap    bool   // a space
	fresh  bool   // nothing stands before: neither breaks nor a space are due
	ended  bool   // the last piece ended its line

	quotes    int
	lists     []list
	wasList   bool // the last tag was a list's
	pre       bool
	preBegins bool
	code      bool

	links  []link
	opened bool   // the newest link's bracket is still to come
	empty  bool   // nothing was written in it
	tag    string // the last that began or ended

	strong bool // emphasis has just begun: what follows loses its outer white space
	weak   bool // emphasised text came last: what follows stands apart
	before rune // the last character of text; 0: none

	table  bool    // the first row is not over
	cells  int     // in it
	inRow  bool    // a cell came before in this row
	abbr   *[]byte // what is written in the abbreviation that is open
	abbrs  [][2]string
	abbrOf string
}

func (p *printer) emit(s string) { p.out = append(p.out, s...) }

// put writes a piece that is not text: a mark. quote says that it is a quotation's own.
func (p *printer) put(s string, quote bool) {
	if p.quiet != 0 || s == "" { // below 0 after an end without a beginning, as it was there
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

// name adds to an abbreviation what is written in it.
func (p *printer) name(s string) {
	if p.abbr != nil && p.quiet == 0 {
		*p.abbr = append(*p.abbr, s...)
	}
}

// words writes text, outside of pre with its white space made single.
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
	if !escape && s == "\u00a0" { // which asked to be kept
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

// closeUp are the tags right after which text stands close, whatever came before.
var closeUp = map[string]bool{"a": true, "code": true, "pre": true, "h1": true, "h2": true, "h3": true, "h4": true,
	"h5": true, "h6": true}

// bracket begins the newest link's text.
func (p *printer) bracket() {
	p.mark("[")
	p.opened, p.empty = false, false
}

// emphasis begins or ends; apart says that it may not touch what came before.
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
	if p.opened && !p.empty { // it was its own address
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

// underOrdered counts the bulleted lists that stand in numbered ones, which are a column further
// in.
func (p *printer) underOrdered() int {
	n := 0
	for i := 1; i < min(len(p.lists), maxNest); i++ {
		if p.lists[i-1].ordered && !p.lists[i].ordered {
			n++
		}
	}
	return n
}
