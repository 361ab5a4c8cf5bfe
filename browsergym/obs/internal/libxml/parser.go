package libxml

import (
	"strings"
	"unicode/utf8"
)

// state is a state of the parser, as in htmlParseTryOrFinish.
type state uint8

const (
	starting state = iota
	misc           // before the document type
	prolog         // after the document type
	content
	inStart
	inEnd
	epilog  // after the end of the root element
	stopped // the rest of the input is ignored
)

// Limits of libxml2.
const (
	maxTag     = 100        // bytes of an element's or attribute's name (HTML_PARSER_BUFFER_SIZE)
	maxName    = 50_000     // bytes of a non-ASCII name (XML_MAX_NAME_LENGTH)
	maxText    = 10_000_000 // bytes of an attribute's value, a comment or an instruction (XML_MAX_TEXT_LENGTH)
	textBuffer = 1000       // bytes of text passed on at once (HTML_PARSER_BIG_BUFFER_SIZE)
	chunkRunes = 1 << 19    // characters that lxml passes to the parser at a time (_FeedParser.feed)
)

// A parser reads s[:end] and has read s[:i]. at returns 0 where the original sees the NUL byte
// after the end of its buffer.
type parser struct {
	soup soup
	s    string
	i    int
	end  int // end of the input that lxml has passed so far
	last bool
	state

	names  map[string]tagID // names that are not in the tables
	open   []openTag
	latest []int32 // by tagID: the topmost open element of that name, or -1
	ranked [ranks]int32
	seen   int // progress of the document: 0, sawHead, sawBody
	lost   int // number of ignored start tags of html, head and body; as many of their end tags are ignored too

	attrs     []Attr
	attrNames map[string]bool // attributes of the current tag, if it has many

	// Searches continue where the last one ended, so that no part of the page is scanned twice.
	lt, gt, slash, special int
	sought                 struct{ at, from int } // the end of the comment that starts at at
	quotes                 []uint64               // bit set of positions from which an unquoted > was reached

	work int // bytes and elements visited in searches
}

const (
	sawHead = 1 + iota
	sawBody
)

// An openTag is an element that has not ended.
type openTag struct {
	id          tagID
	below       int32 // next open element below it with the same name, or -1
	belowRanked int32 // next open element below it with the same rank
}

// Parse parses a page. Each byte that is not UTF-8 is read as U+FFFD.
func Parse(s string) *Node {
	root, _ := parse(s)
	return root
}

// parse also returns the amount of work.
func parse(s string) (*Node, int) {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	s = strings.TrimPrefix(s, "\ufeff") // LXMLTreeBuilderForXML.prepare_markup
	p := &parser{s: s, latest: make([]int32, len(tags)), open: make([]openTag, 0, 32)}
	p.soup.init()
	for i := range p.latest {
		p.latest[i] = -1
	}
	for i := range p.ranked {
		p.ranked[i] = -1
	}
	for p.end < len(s) {
		p.end = chunkEnd(s, p.end)
		p.run()
	}
	p.last = true
	p.run()
	p.soup.flush()
	return p.soup.root, p.work + p.soup.work
}

// chunkEnd returns the end of lxml's chunk that starts at i.
func chunkEnd(s string, i int) int {
	if len(s)-i <= chunkRunes {
		return len(s)
	}
	n := 0
	for k := range s[i:] {
		if n == chunkRunes {
			return i + k
		}
		n++
	}
	return len(s)
}

func (p *parser) at(i int) byte {
	if i < p.end {
		return p.s[i]
	}
	return 0
}

func (p *parser) cur() byte { return p.at(p.i) }

// run reads the available input. Before the last call it leaves constructs that are not complete.
// (htmlParseTryOrFinish. Elements that are open at the end are not ended here, because the tree
// does not need it.)
func (p *parser) run() {
	for p.i < p.end && p.state != stopped {
		if p.s[p.i] == 0 {
			p.i++
			continue
		}
		if !p.step() {
			return
		}
	}
}

// step reads one construct. It returns false if it needs more input.
func (p *parser) step() bool {
	switch p.state {
	case starting:
		p.blanks()
		if p.isDoctype() {
			if !p.last && !p.tagEnds() {
				return false
			}
			p.doctype()
			p.state = prolog
		} else {
			p.state = misc
		}
	case misc, prolog:
		return p.beforeContent()
	case content:
		return p.content()
	case inStart:
		return p.startTagState()
	case inEnd:
		if p.end-p.i < 2 || !p.last && !p.next(&p.gt, '>') {
			return false
		}
		p.endTag()
		p.state = content
		if len(p.open) == 0 {
			p.state = epilog
		}
	case epilog:
		return p.afterContent()
	}
	return true
}

// beforeContent reads white space, comments and instructions before the first element.
func (p *parser) beforeContent() bool {
	p.blanks()
	n := p.end - p.i
	if n < 1 || n < 2 && (!p.last || p.state == prolog) {
		return false
	}
	switch {
	case p.has("<!--"):
		return p.comment()
	case p.has("<?"):
		return p.instruction()
	case p.state == misc && p.isDoctype():
		if !p.last && !p.tagEnds() {
			return false
		}
		p.doctype()
		p.state = prolog
	case p.has("<!") && (n < 4 || p.state == misc && n < 9):
		return false
	default:
		p.state = content
	}
	return true
}

// afterContent reads what follows the root element. White space, and text after it, ends the
// reading of the available input. Anything but comments and instructions ends the document.
func (p *parser) afterContent() bool {
	if isBlank(p.cur()) {
		p.text()
		return false
	}
	n := p.end - p.i
	switch {
	case n < 2:
		return false
	case p.has("<!--"):
		return p.comment()
	case p.has("<?"):
		return p.instruction()
	case p.has("<!") && n < 4:
		return false
	}
	p.state = stopped
	return false
}

func (p *parser) content() bool {
	n := p.end - p.i
	c := p.cur()
	if n == 1 && p.last && c != '<' && c != '&' {
		if !isBlank(c) {
			p.paragraph()
		}
		p.soup.data(p.s[p.i:p.end])
		p.i++
		return true
	}
	if n < 2 {
		return false
	}
	d := p.at(p.i + 1)
	switch {
	case p.inRaw():
		if !p.last {
			if !p.nextEnd() || p.at(p.slash+2) == 0 {
				return false
			}
		}
		p.raw()
		if c == '<' && d == '/' {
			p.state = inEnd
		}
	case c == '<' && d == '!':
		switch {
		case n < 4:
			return false
		case p.isDoctype():
			if !p.last && !p.tagEnds() {
				return false
			}
			p.doctype()
		case p.has("<!--"):
			return p.comment()
		default: // this includes CDATA sections
			if !p.last && !p.next(&p.gt, '>') {
				return false
			}
			p.bogusComment()
		}
	case c == '<' && d == '?':
		return p.instruction()
	case c == '<' && d == '/':
		p.state = inEnd
	case c == '<' && isLetter(d):
		p.state = inStart
	case c == '<':
		p.soup.data("<")
		p.i++
	default:
		if !p.last && !p.next(&p.lt, '<') {
			return false
		}
		for p.i < p.end && p.s[p.i] != '<' {
			if p.s[p.i] == '&' {
				p.reference()
			} else {
				p.text()
			}
		}
	}
	return true
}

// startTagState reads a start tag and handles its effects (XML_PARSER_START_TAG in
// htmlParseTryOrFinish).
func (p *parser) startTagState() bool {
	c, d := p.cur(), p.at(p.i+1)
	if p.end-p.i < 2 {
		if !p.last {
			return false
		}
		d = ' '
	}
	switch {
	case c != '<':
		p.state = content
		return true
	case d == '/':
		p.state = inEnd
		return true
	case !p.last && !p.tagEnds():
		return false
	}
	if !p.startTag() || len(p.open) == 0 {
		if p.cur() == '>' {
			p.advance()
		}
		return true
	}
	p.state = content
	// The end of an ignored tag applies to the current element.
	id := p.open[len(p.open)-1].id
	switch {
	case p.has("/>"):
		p.i += 2
		p.closeTop()
	case p.cur() != '>': // a NUL byte, or the end
		p.pop() // not reported to the tree
	default:
		p.i++
		if int(id) < len(tags) && tags[id].void {
			p.closeTop()
		}
	}
	return true
}

const fewAttrs = 16
