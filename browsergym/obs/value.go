package obs

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// A Value is a JSON value as the browser sent it. The original text is kept, because Python
// distinguishes ints and floats by it.
type Value []byte

// UnmarshalJSON keeps the text.
func (v *Value) UnmarshalJSON(b []byte) error {
	*v = append((*v)[:0], b...)
	return nil
}

// MarshalJSON returns the text.
func (v Value) MarshalJSON() ([]byte, error) {
	if v == nil {
		return []byte("null"), nil
	}
	return v, nil
}

// Text returns the value of a string, or "" for other types.
func (v Value) Text() string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	if bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v) {
		return string(v[1 : len(v)-1])
	}
	var s string
	_ = json.Unmarshal(v, &s) // cannot fail: a Value was decoded before
	return s
}

// truth returns Python's truth value of v.
func (v Value) truth() bool {
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
		return pyrepr.AppendRepr(b, v.Text())
	case 't':
		return append(b, "True"...)
	case 'f':
		return append(b, "False"...)
	case 'n':
		return append(b, "None"...)
	case '[':
		var list []Value
		_ = json.Unmarshal(v, &list)
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
		_, _ = d.Token()
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
			b = append(pyrepr.AppendRepr(b, key), ": "...)
			b = x.appendTo(b)
		}
		return append(b, '}')
	}
	return appendNumber(b, string(v))
}

// appendNumber appends a JSON number: an int unchanged, a float as Python prints it.
func appendNumber(b []byte, s string) []byte {
	if !strings.ContainsAny(s, ".eE") {
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
	return pyrepr.AppendFloat(b, f)
}
