// Package pyrepr formats values like Python's repr and has Python's definition of white space.
// Agents see such text, and published results were made with it.
package pyrepr

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AppendRepr appends s as Python's repr prints it.
func AppendRepr(b []byte, s string) []byte {
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	b = append(b, quote)
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == quote || c == '\\':
			b = append(b, '\\', c)
			i++
			continue
		case c >= ' ' && c < 0x7f:
			b = append(b, c)
			i++
			continue
		case c == '\n':
			b = append(b, '\\', 'n')
			i++
			continue
		case c == '\r':
			b = append(b, '\\', 'r')
			i++
			continue
		case c == '\t':
			b = append(b, '\\', 't')
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			r = '\uFFFD'
		}
		if printable(r) {
			b = utf8.AppendRune(b, r)
		} else {
			b = appendEscape(b, r)
		}
		i += n
	}
	return append(b, quote)
}

// printable is Python's str.isprintable for one character.
func printable(r rune) bool {
	return r == ' ' || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Cs, unicode.Co, unicode.Z) &&
		unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
}

func appendEscape(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	width := 2
	switch {
	case r > 0xffff:
		b, width = append(b, '\\', 'U'), 8
	case r > 0xff:
		b, width = append(b, '\\', 'u'), 4
	default:
		b = append(b, '\\', 'x')
	}
	for i := width - 1; i >= 0; i-- {
		b = append(b, hex[r>>(4*i)&0xf])
	}
	return b
}

// Strip is Python's str.strip. It removes Unicode white space and the four ASCII separators that Go
// does not count as white space.
func Strip(s string) string { return strings.TrimFunc(s, IsSpace) }

// IsSpace is Python's str.isspace for one character.
func IsSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// AppendFloat appends Python's repr of a float: the shortest text that parses to the same value,
// with a point or an exponent.
func AppendFloat(b []byte, f float64) []byte {
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exp, _ := strings.Cut(s, "e")
	n, _ := strconv.Atoi(exp)
	if -4 <= n && n < 16 {
		s = strconv.FormatFloat(f, 'f', -1, 64)
		if strings.IndexByte(s, '.') < 0 {
			s += ".0"
		}
		return append(b, s...)
	}
	sign := "+"
	if n < 0 {
		sign, n = "-", -n
	}
	b = append(b, mantissa...)
	b = append(b, 'e')
	b = append(b, sign...)
	if n < 10 {
		b = append(b, '0')
	}
	return strconv.AppendInt(b, int64(n), 10)
}
