package action

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// maxNesting is the maximum nesting of values.
const maxNesting = 100

// Parse finds the calls in an agent's text. If strict, the text must consist only of calls;
// otherwise other text around them is skipped. Errors are *[Error]. The time is linear in the text.
func Parse(text string, strict bool) ([]Call, error) {
	p := &parser{s: pyrepr.ExpandTabs(text)}
	if strict {
		return p.whole()
	}
	var calls []Call
	for i := 0; ; {
		i = p.space(i)
		if i >= len(p.s) {
			return calls, nil
		}
		c, next, failed, err := p.call(i)
		if err != nil {
			return nil, err
		}
		if failed == nil {
			calls = append(calls, c)
			i = next
			continue
		}
		// If no call starts with this name, none starts inside it: the text after it would be the
		// same.
		if _, end := p.identifier(i); end > i {
			i = end
		} else {
			_, n := utf8.DecodeRuneInString(p.s[i:])
			i += n
		}
	}
}

type parser struct{ s string }

// expected says what was missing in a strict text, and where.
type expected struct {
	what string
	at   int
}

// whole parses a text that consists only of calls.
func (p *parser) whole() ([]Call, error) {
	var calls []Call
	for i := 0; ; {
		i = p.space(i)
		if i >= len(p.s) && len(calls) > 0 {
			return calls, nil
		}
		c, next, failed, err := p.call(i)
		if err != nil {
			return nil, err
		}
		if failed != nil {
			if len(calls) > 0 {
				failed = &expected{"end of text", i}
			}
			return nil, p.exception(failed)
		}
		calls = append(calls, c)
		i = next
	}
}

// exception formats an error like pyparsing.
func (p *parser) exception(e *expected) *Error {
	found := ""
	switch {
	case p.s == "":
	case e.at >= len(p.s):
		found = ", found end of text"
	default:
		_, n := utf8.DecodeRuneInString(p.s[e.at:])
		word := 0
		for e.at+word < len(p.s) && word < 16 && alnum(p.s[e.at+word]) {
			word++
		}
		r := pyrepr.Repr(pyrepr.Str(p.s[e.at : e.at+max(n, word)]))
		found = ", found " + strings.ReplaceAll(r, `\\`, `\`)
	}
	before := p.s[:min(e.at, len(p.s))]
	line := strings.Count(before, "\n") + 1
	col := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
	return &Error{"ParseException", fmt.Sprintf("Expected %s%s  (at char %d), (line:%d, col:%d)", e.what, found,
		utf8.RuneCountInString(before), line, col)}
}

// space skips white space and comments.
func (p *parser) space(i int) int {
	for i < len(p.s) {
		switch p.s[i] {
		case ' ', '\n', '\r', '\t':
			i++
		case '#':
			if n := strings.IndexByte(p.s[i:], '\n'); n >= 0 {
				i += n
			} else {
				return len(p.s)
			}
		default:
			return i
		}
	}
	return i
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

// letter reports whether r may start an identifier: a Latin-1 letter or an underscore.
func letter(r rune) bool {
	switch {
	case r == '_', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == 0xaa, r == 0xb5, r == 0xba:
		return true
	}
	return r >= 0xc0 && r <= 0xff && r != 0xd7 && r != 0xf7
}

// identifier parses a name; end is i if there is none.
func (p *parser) identifier(i int) (name string, end int) {
	j := i
	for j < len(p.s) {
		r, n := utf8.DecodeRuneInString(p.s[j:])
		if !letter(r) && (j == i || !(r >= '0' && r <= '9' || r == 0xb7)) {
			break
		}
		j += n
	}
	return p.s[i:j], j
}

func (p *parser) is(i int, c byte) bool { return i < len(p.s) && p.s[i] == c }

// call parses one call. failed is set if the text is not a call. err is an error of Python itself,
// which rejects the whole text.
func (p *parser) call(i int) (c Call, next int, failed *expected, err error) {
	name, j := p.identifier(i)
	if j == i {
		return c, i, &expected{"identifier", i}, nil
	}
	j = p.space(j)
	if !p.is(j, '(') {
		return c, i, &expected{"'('", j}, nil
	}
	c.Name = name
	j++
	var end int
	if c.Args, end, err = p.values(j, 0); err != nil {
		return c, i, nil, err
	}
	if c.Named, end, err = p.named(end); err != nil {
		return c, i, nil, err
	}
	end = p.space(end)
	if !p.is(end, ')') {
		return c, i, &expected{"')'", end}, nil
	}
	return c, end + 1, nil, nil
}

// values parses values separated by commas, with an optional comma at the end. end is the end of
// what could be parsed.
func (p *parser) values(i, depth int) (list []pyrepr.Value, end int, err error) {
	end = i
	for {
		v, next, ok, err := p.value(p.space(end), depth)
		if err != nil {
			return nil, i, err
		}
		if !ok {
			return list, end, nil
		}
		list = append(list, v)
		end = next
		comma := p.space(end)
		if !p.is(comma, ',') {
			return list, end, nil
		}
		end = comma + 1
	}
}

func (p *parser) named(i int) (list []Named, end int, err error) {
	end = i
	for {
		at := p.space(end)
		name, j := p.identifier(at)
		if j == at {
			return list, end, nil
		}
		j = p.space(j)
		if !p.is(j, '=') {
			return list, end, nil
		}
		v, next, ok, err := p.value(p.space(j+1), 0)
		if err != nil || !ok {
			return list, end, err
		}
		list = append(list, Named{name, v})
		end = next
		comma := p.space(end)
		if !p.is(comma, ',') {
			return list, end, nil
		}
		end = comma + 1
	}
}

// value parses the value at i; ok is false if there is none.
func (p *parser) value(i, depth int) (v pyrepr.Value, end int, ok bool, err error) {
	if i >= len(p.s) {
		return nil, i, false, nil
	}
	if depth > maxNesting {
		return nil, i, false, &Error{"RecursionError", "maximum recursion depth exceeded"}
	}
	closing := map[byte]byte{'[': ']', '(': ')'}
	switch c := p.s[i]; c {
	case '"', '\'':
		return p.str(i)
	case '[', '(':
		list, end, err := p.values(i+1, depth+1)
		if err != nil {
			return nil, i, false, err
		}
		end = p.space(end)
		if !p.is(end, closing[c]) {
			return nil, i, false, nil
		}
		if c == '[' {
			return pyrepr.List(list), end + 1, true, nil
		}
		return pyrepr.Tuple(list), end + 1, true, nil
	case '{':
		return p.dict(i, depth)
	case 'T', 'F', 'N':
		for word, v := range map[string]pyrepr.Value{"True": pyrepr.Bool(true), "False": pyrepr.Bool(false),
			"None": pyrepr.None{}} {
			if end := i + len(word); strings.HasPrefix(p.s[i:], word) &&
				(end == len(p.s) || !alnum(p.s[end]) && p.s[end] != '_' && p.s[end] != '$') {
				return v, end, true, nil
			}
		}
		return nil, i, false, nil
	}
	return p.number(i)
}

func (p *parser) dict(i, depth int) (pyrepr.Value, int, bool, error) {
	var d pyrepr.Dict
	end := i + 1
	for {
		end = p.space(end)
		if p.is(end, '}') {
			return d, end + 1, true, nil
		}
		if !p.is(end, '"') && !p.is(end, '\'') {
			return nil, i, false, nil
		}
		k, next, ok, err := p.str(end)
		if err != nil || !ok {
			return nil, i, false, err
		}
		next = p.space(next)
		if !p.is(next, ':') {
			return nil, i, false, nil
		}
		v, next, ok, err := p.value(p.space(next+1), depth+1)
		if err != nil || !ok {
			return nil, i, false, err
		}
		d = append(d, pyrepr.Pair{Key: string(k.(pyrepr.Str)), Value: v})
		end = p.space(next)
		if p.is(end, ',') {
			end++
		} else if !p.is(end, '}') {
			return nil, i, false, nil
		}
	}
}

// str parses a string literal.
func (p *parser) str(i int) (pyrepr.Value, int, bool, error) {
	quote := p.s[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(p.s[i:], triple) {
		if v, end, ok, err := p.body(i+3, triple); ok || err != nil {
			return v, end, ok, err
		}
	}
	return p.body(i+1, quote)
}

// body parses the content of a string and its closing quotes.
func (p *parser) body(i int, quote string) (pyrepr.Value, int, bool, error) {
	for j := i; j < len(p.s); {
		switch c := p.s[j]; {
		case strings.HasPrefix(p.s[j:], quote):
			s, err := pyrepr.Unquote(p.s[i:j])
			if err != nil {
				return nil, i, false, &Error{"SyntaxError", err.Error()}
			}
			return pyrepr.Str(s), j + len(quote), true, nil
		case c == '\\':
			switch {
			case j+1 >= len(p.s),
				len(quote) == 3 && p.s[j+1] == '\n',
				len(quote) == 1 && p.s[j+1] == 'x' && (j+2 >= len(p.s) || !hex(p.s[j+2])):
				return nil, i, false, nil
			}
			_, n := utf8.DecodeRuneInString(p.s[j+1:])
			j += 1 + n
		case len(quote) == 1 && (c == '\n' || c == '\r'):
			return nil, i, false, nil
		default:
			j++
		}
	}
	return nil, i, false, nil
}

func hex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

// number parses an int or a float.
func (p *parser) number(i int) (pyrepr.Value, int, bool, error) {
	digits := func(j int) int {
		for j < len(p.s) && p.s[j] >= '0' && p.s[j] <= '9' {
			j++
		}
		return j
	}
	j := i
	if p.is(j, '+') || p.is(j, '-') {
		j++
	}
	whole := digits(j)
	end, isFloat := whole, false
	if p.is(whole, '.') {
		if frac := digits(whole + 1); frac > whole+1 || whole > j {
			end, isFloat = frac, true
		}
	}
	if end == j {
		return nil, i, false, nil
	}
	if k := end; p.is(k, 'e') || p.is(k, 'E') {
		k++
		if p.is(k, '+') || p.is(k, '-') {
			k++
		}
		if d := digits(k); d > k {
			end, isFloat = d, true
		}
	}
	text := p.s[i:end]
	if isFloat {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && !math.IsInf(f, 0) {
			return nil, i, false, nil
		}
		return pyrepr.Float(f), end, true, nil
	}
	n := strings.TrimLeft(strings.TrimLeft(text, "+-"), "0")
	switch {
	case n == "":
		n = "0"
	case text[0] == '-':
		n = "-" + n
	}
	return pyrepr.Int(n), end, true, nil
}
