package fake

import (
	"fmt"
	"strings"
)

// The syntax of the small shell: words with quotes, $NAME, ${NAME}, $? and $(…); pipes; && || ; &
// and line breaks; ! and ( … ); redirections < > >> 2> 2>> &> 2>&1 >&2 and here-documents;
// comments. Anything else is a syntax error.
type (
	list []item
	item struct {
		op   string // how it follows the one before: "" (always), "&&", "||"
		not  bool
		back bool // runs in the background
		pipe []*simple
	}
	simple struct {
		assign []assignment
		words  []word
		redirs []*redirection
		sub    list // a subshell instead of words
		isSub  bool
	}
	assignment struct {
		name  string
		value word
	}
	redirection struct {
		fd   int    // 0, 1, 2; 12: both outputs
		op   string // "<" ">" ">>" "<<" ">&"
		to   word
		body word // of a here-document
	}
	word  []piece
	piece struct {
		text   string // literal, or a variable's name
		kind   byte   // 'l' literal, 'v' variable, 'c' command
		quoted bool
		sub    list
	}
)

type parser struct {
	s    string
	at   int
	here []*redirection // here-documents whose text begins after this line
	deep int
}

type syntaxError struct{ what string }

func (e syntaxError) Error() string { return "syntax error: " + e.what }

func parse(s string) (l list, err error) {
	p := &parser{s: s}
	defer func() {
		if e := recover(); e != nil {
			se, ok := e.(syntaxError)
			if !ok {
				panic(e)
			}
			err = se
		}
	}()
	l = p.list("")
	if p.at < len(p.s) {
		p.fail("unexpected %q", p.s[p.at:p.at+1])
	}
	return l, nil
}

func (p *parser) fail(format string, args ...any) { panic(syntaxError{fmt.Sprintf(format, args...)}) }

func (p *parser) peek(s string) bool { return strings.HasPrefix(p.s[p.at:], s) }

func (p *parser) take(s string) bool {
	if p.peek(s) {
		p.at += len(s)
		return true
	}
	return false
}

// space skips blanks, comments and joined lines; with lines, line breaks too.
func (p *parser) space(lines bool) {
	for p.at < len(p.s) {
		switch c := p.s[p.at]; {
		case c == ' ' || c == '\t' || c == '\r':
			p.at++
		case p.take("\\\n"):
		case c == '\n' && lines:
			p.newline()
		case c == '#':
			if i := strings.IndexByte(p.s[p.at:], '\n'); i >= 0 {
				p.at += i
			} else {
				p.at = len(p.s)
			}
		default:
			return
		}
	}
}

// newline takes a line break and the here-documents that wait for it.
func (p *parser) newline() {
	p.at++
	for _, r := range p.here {
		mark, quoted := "", false
		for _, x := range r.to {
			mark, quoted = mark+x.text, quoted || x.quoted
		}
		strip := r.op == "<<-"
		var body strings.Builder
		for {
			if p.at >= len(p.s) {
				break // as bash does, the end of the script ends it
			}
			line, _, _ := strings.Cut(p.s[p.at:], "\n")
			p.at = min(len(p.s), p.at+len(line)+1)
			if strip {
				line = strings.TrimLeft(line, "\t")
			}
			if line == mark {
				break
			}
			body.WriteString(line + "\n")
		}
		if quoted {
			r.body = word{{text: body.String(), kind: 'l', quoted: true}}
		} else {
			q := &parser{s: body.String()}
			r.body = q.quoted("")
		}
	}
	p.here = nil
}

// list parses up to end, which is not taken.
func (p *parser) list(end string) (l list) {
	if p.deep++; p.deep > 100 {
		p.fail("nested too deep")
	}
	defer func() { p.deep-- }()
	op := ""
	for {
		p.space(true)
		if p.at >= len(p.s) || end != "" && p.peek(end) {
			if op != "" {
				p.fail("nothing after %s", op)
			}
			return l
		}
		it := item{op: op}
		if p.peek("! ") {
			p.at++
			it.not = true
			p.space(false)
		}
		for {
			it.pipe = append(it.pipe, p.simple(end))
			p.space(false)
			if p.peek("||") || !p.take("|") {
				break
			}
			p.space(true)
		}
		op = ""
		switch {
		case p.take("&&"):
			op = "&&"
		case p.take("||"):
			op = "||"
		case p.take("&"):
			it.back = true
		case p.take(";"):
		case p.at >= len(p.s), p.s[p.at] == '\n', end != "" && p.peek(end):
		default:
			p.fail("unexpected %q", p.s[p.at:p.at+1])
		}
		l = append(l, it)
	}
}

func (p *parser) simple(end string) *simple {
	c := &simple{}
	if p.take("(") {
		c.isSub = true
		c.sub = p.list(")")
		if !p.take(")") {
			p.fail("no ) for (")
		}
	}
	for {
		p.space(false)
		if p.at >= len(p.s) || strings.IndexByte("\n;|)", p.s[p.at]) >= 0 || p.peek("&") && !p.peek("&>") {
			break
		}
		if r := p.redirection(); r != nil {
			c.redirs = append(c.redirs, r)
			if strings.HasPrefix(r.op, "<<") && r.op != "<<<" {
				p.here = append(p.here, r)
			}
			continue
		}
		if c.isSub {
			p.fail("unexpected %q after )", p.s[p.at:p.at+1])
		}
		if p.peek("(") {
			p.fail("unexpected \"(\"")
		}
		if name := p.assignName(); name != "" && len(c.words) == 0 {
			p.at += len(name) + 1
			c.assign = append(c.assign, assignment{name, p.word()})
			continue
		}
		c.words = append(c.words, p.word())
	}
	if !c.isSub && len(c.words)+len(c.assign)+len(c.redirs) == 0 {
		if p.at < len(p.s) && p.s[p.at] != '\n' {
			p.fail("unexpected %q", p.s[p.at:p.at+1])
		}
		p.fail("unexpected end")
	}
	if len(c.words) > 0 && len(c.words[0]) == 1 && !c.words[0][0].quoted {
		switch w := c.words[0][0].text; w {
		case "if", "for", "while", "case", "function", "{", "until", "[[":
			p.fail("this small shell has no %q", w)
		}
	}
	return c
}

func (p *parser) assignName() string {
	n := nameLen(p.s[p.at:])
	if n > 0 && p.at+n < len(p.s) && p.s[p.at+n] == '=' {
		return p.s[p.at : p.at+n]
	}
	return ""
}

// nameLen is the length of the variable's name that s begins with.
func nameLen(s string) int {
	n := 0
	for n < len(s) && (s[n] == '_' || s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z' || n > 0 &&
		s[n] >= '0' && s[n] <= '9') {
		n++
	}
	return n
}

func (p *parser) redirection() *redirection {
	r := &redirection{fd: -1}
	begin := p.at
	switch {
	case p.take("&>>"):
		r.fd, r.op = 12, ">>"
	case p.take("&>"):
		r.fd, r.op = 12, ">"
	case p.take("1"):
		r.fd = 1
	case p.take("2"):
		r.fd = 2
	case p.take("0"):
		r.fd = 0
	}
	if r.op == "" {
		for _, op := range []string{"<<<", "<<-", "<<", "<", ">&", ">>", ">|", ">"} {
			if p.take(op) {
				r.op = op
				break
			}
		}
	}
	if r.op == "" {
		p.at = begin // a word that begins with a digit
		return nil
	}
	if r.op == ">|" {
		r.op = ">"
	}
	if r.fd < 0 {
		r.fd = 1
		if r.op[0] == '<' {
			r.fd = 0
		}
	}
	p.space(false)
	if p.at >= len(p.s) || strings.IndexByte("\n;|&<>()", p.s[p.at]) >= 0 {
		p.fail("no name after %s", r.op)
	}
	r.to = p.word()
	return r
}

// word takes one word, quotes and all.
func (p *parser) word() (w word) {
	lit := func(s string, quoted bool) { w = append(w, piece{text: s, kind: 'l', quoted: quoted}) }
	for p.at < len(p.s) {
		switch c := p.s[p.at]; c {
		case ' ', '\t', '\r', '\n', ';', '|', '&', '<', '>', '(', ')':
			return w
		case '\'':
			p.at++
			i := strings.IndexByte(p.s[p.at:], '\'')
			if i < 0 {
				p.fail("a ' without its end")
			}
			lit(p.s[p.at:p.at+i], true)
			p.at += i + 1
		case '"':
			p.at++
			w = append(w, p.quoted(`"`)...)
			if !p.take(`"`) {
				p.fail(`a " without its end`)
			}
		case '\\':
			if p.take("\\\n") {
				continue
			}
			p.at++
			if p.at < len(p.s) {
				lit(p.s[p.at:p.at+1], true)
				p.at++
			}
		case '$', '`':
			w = append(w, p.dollar(false))
		default:
			i := strings.IndexAny(p.s[p.at:], " \t\r\n;|&<>()'\"\\$`")
			if i < 0 {
				i = len(p.s) - p.at
			}
			lit(p.s[p.at:p.at+i], false)
			p.at += i
		}
	}
	return w
}

// quoted takes what stands between double quotes, or all of a here-document.
func (p *parser) quoted(end string) (w word) {
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			w = append(w, piece{text: b.String(), kind: 'l', quoted: true})
			b.Reset()
		}
	}
	for p.at < len(p.s) && (end == "" || !p.peek(end)) {
		switch c := p.s[p.at]; {
		case c == '$' || c == '`':
			flush()
			w = append(w, p.dollar(true))
		case c == '\\' && p.at+1 < len(p.s) && strings.IndexByte("$`\\\n"+end, p.s[p.at+1]) >= 0:
			if p.s[p.at+1] != '\n' {
				b.WriteByte(p.s[p.at+1])
			}
			p.at += 2
		default:
			b.WriteByte(c)
			p.at++
		}
	}
	flush()
	if len(w) == 0 {
		w = word{{kind: 'l', quoted: true}} // "" is an argument
	}
	return w
}

// dollar takes a variable or a command's output.
func (p *parser) dollar(quoted bool) piece {
	if p.take("`") {
		i := strings.IndexByte(p.s[p.at:], '`')
		if i < 0 {
			p.fail("a ` without its end")
		}
		q := &parser{s: p.s[p.at : p.at+i]}
		l := q.list("")
		p.at += i + 1
		return piece{kind: 'c', quoted: quoted, sub: l}
	}
	p.at++
	switch {
	case p.peek("(("):
		p.fail("this small shell has no $((")
	case p.take("("):
		l := p.list(")")
		if !p.take(")") {
			p.fail("no ) for $(")
		}
		return piece{kind: 'c', quoted: quoted, sub: l}
	case p.take("{"):
		n := nameLen(p.s[p.at:])
		name := p.s[p.at : p.at+n]
		p.at += n
		if n == 0 || !p.take("}") {
			p.fail("this small shell has only ${NAME}")
		}
		return piece{text: name, kind: 'v', quoted: quoted}
	}
	if n := nameLen(p.s[p.at:]); n > 0 {
		p.at += n
		return piece{text: p.s[p.at-n : p.at], kind: 'v', quoted: quoted}
	}
	if p.at < len(p.s) && strings.IndexByte("?$0123456789@*#", p.s[p.at]) >= 0 {
		p.at++
		return piece{text: p.s[p.at-1 : p.at], kind: 'v', quoted: quoted}
	}
	return piece{text: "$", kind: 'l', quoted: quoted}
}
