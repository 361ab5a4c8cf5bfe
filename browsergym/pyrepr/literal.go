package pyrepr

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/runenames"
)

// Unquote evaluates the content of a string literal. Its error is a SyntaxError: it has Python's
// text without the name of the type.
func Unquote(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	at := 0 // position as Python counts it: it first escapes non-ASCII characters, ten characters each
	for i := 0; i < len(s); {
		c := s[i]
		if c != '\\' {
			if c < utf8.RuneSelf {
				b.WriteByte(c)
				i, at = i+1, at+1
				continue
			}
			_, n := utf8.DecodeRuneInString(s[i:])
			b.WriteString(s[i : i+n])
			i, at = i+n, at+10
			continue
		}
		r, n, problem := escape(s[i:])
		if problem != "" {
			return "", fmt.Errorf("(unicode error) 'unicodeescape' codec can't decode bytes in position %d-%d: %s "+
				"(<unknown>, line 1)", at, at+n-1, problem)
		}
		b.WriteString(r)
		i, at = i+n, at+n
	}
	return b.String(), nil
}

var simple = map[byte]string{'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n",
	'r': "\r", 't': "\t", 'v': "\v"}

// escape evaluates the escape at the start of s and returns its length n.
func escape(s string) (text string, n int, problem string) {
	if len(s) < 2 {
		return `\`, 1, ""
	}
	c := s[1]
	if t, ok := simple[c]; ok {
		return t, 2, ""
	}
	digits := func(max int, isDigit func(byte) bool) string {
		j := 2
		for j < len(s) && j < 2+max && isDigit(s[j]) {
			j++
		}
		return s[2:j]
	}
	switch c {
	case 'x', 'u', 'U':
		width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		d := digits(width, isHex)
		if len(d) < width {
			return "", 2 + len(d), "truncated \\" + string(c) + strings.Repeat("X", width) + " escape"
		}
		v, _ := strconv.ParseUint(d, 16, 64)
		if v > utf8.MaxRune {
			return "", 2 + width, "illegal Unicode character"
		}
		return string(rune(v)), 2 + width, ""
	case 'N':
		end := strings.IndexByte(s, '}')
		if len(s) < 3 || s[2] != '{' || end < 4 {
			return "", 2, "malformed \\N character escape"
		}
		r, ok := named(s[3:end])
		if !ok {
			return "", end + 1, "unknown Unicode character name"
		}
		return string(r), end + 1, ""
	}
	if c >= '0' && c <= '7' {
		j := 2
		for j < len(s) && j < 4 && s[j] >= '0' && s[j] <= '7' {
			j++
		}
		v, _ := strconv.ParseUint(s[1:j], 8, 32)
		return string(rune(v)), j, ""
	}
	return `\`, 1, ""
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

var names = sync.OnceValue(func() map[string]rune {
	m := make(map[string]rune, 40_000)
	for r := rune(0); r <= 0x10ffff; r++ {
		if n := runenames.Name(r); n != "" && n[0] != '<' {
			m[n] = r
		}
	}
	return m
})

// named returns the character with a Unicode name, in any case.
func named(name string) (rune, bool) {
	r, ok := names()[strings.ToUpper(name)]
	return r, ok
}

// ExpandTabs is Python's str.expandtabs.
func ExpandTabs(s string) string {
	if strings.IndexByte(s, '\t') < 0 {
		return s
	}
	var b strings.Builder
	col := 0
	for _, r := range s {
		switch r {
		case '\t':
			n := 8 - col%8
			b.WriteString("        "[:n])
			col += n
		case '\n', '\r':
			b.WriteRune(r)
			col = 0
		default:
			b.WriteRune(r)
			col++
		}
	}
	return b.String()
}
