package obs

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// appendRepr appends s as Python's repr prints it.
func appendRepr(b []byte, s string) []byte {
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

// printable is str.isprintable of one character.
func printable(r rune) bool {
	return r == ' ' || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Cs, unicode.Co, unicode.Z) && unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
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

// strip is str.strip of Python: white space of Unicode, and the four separators of ASCII that Go does not count.
func strip(s string) string { return strings.TrimFunc(s, isSpace) }

func isSpace(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f }

// A Value is a JSON value as the browser sent it. What Python makes of it (an int is not a float) is seen in its text.
type Value []byte

// UnmarshalJSON keeps the text.
func (v *Value) UnmarshalJSON(b []byte) error {
	*v = append((*v)[:0], b...)
	return nil
}

// MarshalJSON writes the text back.
func (v Value) MarshalJSON() ([]byte, error) {
	if v == nil {
		return []byte("null"), nil
	}
	return v, nil
}

// Text is the value of a string, else "".
func (v Value) Text() string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	if bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) {
		return string(v[1 : len(v)-1])
	}
	var s string
	json.Unmarshal(v, &s)
	return s
}

// true_ is Python's truth of the value.
func (v Value) true_() bool {
	switch s := string(v); s {
	case "", "null", "false", `""`, "[]", "{}":
		return false
	default:
		if s[0] == '-' || s[0] >= '0' && s[0] <= '9' {
			f, err := strconv.ParseFloat(s, 64)
			return err != nil || f != 0
		}
		return true
	}
}

// appendTo appends the value as Python's repr prints it.
func (v Value) appendTo(b []byte) []byte {
	if len(v) == 0 {
		return append(b, "None"...)
	}
	switch v[0] {
	case '"':
		return appendRepr(b, v.Text())
	case 't':
		return append(b, "True"...)
	case 'f':
		return append(b, "False"...)
	case 'n':
		return append(b, "None"...)
	case '[':
		var list []Value
		json.Unmarshal(v, &list)
		b = append(b, '[')
		for i, x := range list {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = x.appendTo(b)
		}
		return append(b, ']')
	case '{':
		d := json.NewDecoder(bytes.NewReader(v))
		d.Token()
		b = append(b, '{')
		for i := 0; d.More(); i++ {
			if i > 0 {
				b = append(b, ", "...)
			}
			k, _ := d.Token()
			key, _ := k.(string)
			var x Value
			if d.Decode(&x) != nil {
				break
			}
			b = append(appendRepr(b, key), ": "...)
			b = x.appendTo(b)
		}
		return append(b, '}')
	}
	return appendNumber(b, string(v))
}

// appendNumber appends a JSON number: an int as it is, a float as Python prints one.
func appendNumber(b []byte, s string) []byte {
	if strings.IndexAny(s, ".eE") < 0 {
		if s == "-0" {
			s = "0"
		}
		return append(b, s...)
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		if strings.HasPrefix(s, "-") {
			return append(b, "-inf"...)
		}
		return append(b, "inf"...)
	}
	return appendFloat(b, f)
}

// appendFloat is repr of a float: the shortest text that gives it again, with a point or an exponent.
func appendFloat(b []byte, f float64) []byte {
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
