package libxml

import (
	"strings"
	"unicode/utf8"
)

// The states of the parser, as in htmlParseTryOrFinish.
type state uint8

const (
	starting state = iota
	misc           // before the document type
	prolog         // after it
	content
	inStart
	inEnd
	epilog  // after the end of the outermost element
	stopped // nothing more is read
)

// Limits of libxml2.
const (
	maxTag     = 100        // bytes of a name of an element or attribute (HTML_PARSER_BUFFER_SIZE)
	maxName    = 50_000     // bytes of a name that is not ASCII (XML_MAX_NAME_LENGTH)
	maxText    = 10_000_000 // bytes of an attribute's value, a comment, an instruction (XML_MAX_TEXT_LENGTH)
	textBuffer = 1000       // bytes of text that are handed on at once (HTML_PARSER_BIG_BUFFER_SIZE)
	chunkRunes = 1 << 19    // characters that lxml gives to the parser at a time (_FeedParser.feed)
)

// A parser reads s[:end], of which it has read s[:i]. Where the original sees a NUL byte behind its buffer's end, at is 0.
type parser struct {
	soup soup
	s    string
	i    int
	end  int // what lxml has handed over so far
	last bool
	state

	names  map[string]tagID // names that the tables do not have
	open   []openTag
	latest []int32 // by tagID: the uppermost open element of that name, or -1
	ranked [ranks]int32
	seen   int // how far a document has got: 0, sawHead, sawBody
	lost   int // start tags of html, head and body that were ignored: as many end tags of these are, too

	attrs     []Attr
	attrNames map[string]bool // of the tag that is read, when it has many

	// Searches go on where the last one ended, so that none reads a part of the page twice.
	lt, gt, slash, special int
	sought                 struct{ at, from int } // the end of the comment at at
	quotes                 []uint64               // places from which an unquoted > was reached, a bit each

	work int // bytes and elements looked at in searches
}

const (
	sawHead = 1 + iota
	sawBody
)

// An openTag is an element that has not ended.
type openTag struct {
	id          tagID
	below       int32 // the next open element below it of the same name, or -1
	belowRanked int32 // and of the same rank
}

// Parse reads a page. Bytes that are not UTF-8 are read as U+FFFD each.
func Parse(s string) *Node {
	root, _ := parse(s)
	return root
}

// parse tells the work that it took, too.
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

// chunkEnd is where the chunk of lxml that begins at i ends.
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

// run reads what is there. Before the last call it leaves alone what has not arrived as a whole. (htmlParseTryOrFinish. Elements that are open
// at the end are not ended here: the tree has no need of it.)
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

// step reads one thing, or reports that it has to wait for more.
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

// afterContent reads what follows the end of the outermost element. White space, and text that follows it, is the last thing that is read of
// what is there; anything but comments and instructions ends the document.
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
		default: // a CDATA section is such a one, too
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

// comment reads one when it is whole.
func (p *parser) comment() bool {
	if !p.last && !p.commentEnds() {
		return false
	}
	p.readComment()
	return true
}

// startTagState reads a start tag and what follows from it (XML_PARSER_START_TAG in htmlParseTryOrFinish).
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
	// A tag that was ignored leaves its end to the element that is open.
	id := p.open[len(p.open)-1].id
	switch {
	case p.has("/>"):
		p.i += 2
		p.closeTop()
	case p.cur() != '>': // a NUL byte, or the end
		p.pop() // without telling the tree
	default:
		p.i++
		if int(id) < len(tags) && tags[id].void {
			p.closeTop()
		}
	}
	return true
}

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

// readAttrs reads attributes up to > or />. Of those that have one name the first counts. What is no attribute is skipped up to white space.
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

const fewAttrs = 16

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

// attrValue reads a value. An end quote that is missing is not missed. (htmlParseAttValue)
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

// attrText reads a value up to its quote, or up to white space or > if it has none. A reference to no character ends what is kept of it.
// (htmlParseHTMLAttribute; its result ends at a NUL byte)
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

// endTag reads an end tag; </ that no name follows vanishes alone. (htmlParseEndTag)
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
	// It does not reach beyond an element that is harder to end. (htmlAutoCloseOnClose)
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

// skipPast reads up to c and over it.
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

// implied starts html, head and body where a start tag needs them. (htmlCheckImplied)
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

// paragraph starts one for text that is directly in html or head, or in nothing. (htmlCheckParagraph)
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

// inRaw tells whether the open element is one whose content is not parsed.
func (p *parser) inRaw() bool {
	if len(p.open) == 0 {
		return false
	}
	id := p.open[len(p.open)-1].id
	return id == tagScript || id == tagStyle
}

// raw reads the content of a script or style up to an end tag whose name begins with its own. (htmlParseScript)
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
		// It is handed on in parts, each of which is looked at: see whether white space alone.
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

// blankIsIgnored tells whether white space before this place is none that text would need a paragraph for. (areBlanks, without a tree)
func (p *parser) blankIsIgnored() bool { return p.cur() == 0 || p.cur() == '<' }

// reference reads a reference in text. One to no character vanishes. (htmlParseReference)
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

// charRef reads a numeric reference, with or without its semicolon; 0 is one to no character of XML. (htmlParseCharRef)
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

// entityRef reads a named reference, which counts only with its semicolon and only if HTML 4 has it. Otherwise r is 0, and name is what is
// kept behind the &; the semicolon is not read. (htmlParseEntityRef)
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

// anyName reads a name that may have other letters than those of ASCII. (htmlParseName, htmlParseNameComplex)
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

// instruction reads a processing instruction, which ends with the first >. One without a name is none: its <? vanishes. (htmlParsePI)
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

// cutAt is where reading stops in a text that is too long: at the first character with which more than maxText bytes of it are kept.
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

// readComment reads a comment. One that does not end vanishes with all that is there. (htmlParseComment)
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

// cutComment reads a comment that is too long to where the original, which reads three characters ahead, gives it up.
func (p *parser) cutComment(end int) {
	p.i += cutAt(p.s[p.i:end])
	for range 3 {
		p.i = min(p.end, p.i+utf8Len(p.cur()))
	}
}

// bogusComment reads over a declaration that is none. (htmlSkipBogusComment)
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

// literal reads a quoted identifier. Its length is counted in characters and taken in bytes; one that this cuts within a character is refused by
// the original with the whole page. (htmlParseSystemLiteral, htmlParsePubidLiteral)
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

// advance reads a character, or the end of a line. (xmlNextChar)
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

// lowerName reads the name of an element or attribute, in small letters. What is longer than maxTag is left. (htmlParseHTMLName)
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

// next looks for c; at is where it has been found or looked for before. (htmlParseLookupSequence)
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

// nextEnd looks for the beginning of an end tag.
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

// tagEnds looks for a > that is in no quotes, as the parser does before it reads a tag (in which it then may find another end).
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
		// From this quote on, the way is the same for whoever comes here.
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

// nextSpecial is where the next quote or > is.
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

// commentEnds looks for the end of a comment, which may be one that the comment then is not ended by. (htmlParseLookupCommentEnd)
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
