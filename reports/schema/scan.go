package schema

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The journal's most frequent entries are parsed by hand. encoding/json scans a body four times (to
// validate and to decode the envelope, then the same for the body), which was half the cost of a
// row. Input that the hand-written parser does not recognize is passed to encoding/json, which also
// reports errors. TestByHand checks that both agree.

// object calls f for each member of a JSON object, with the raw value. It returns false if data is
// not an object, or if f returns false.
func object(data []byte, f func(key, val []byte) bool) bool {
	i := blank(data, 0)
	if i >= len(data) || data[i] != '{' {
		return false
	}
	i = blank(data, i+1)
	if i < len(data) && data[i] == '}' {
		return blank(data, i+1) == len(data)
	}
	for {
		start := i
		if i = skipString(data, i); i < 0 {
			return false
		}
		key := data[start+1 : i-1]
		if i = blank(data, i); i >= len(data) || data[i] != ':' {
			return false
		}
		start = blank(data, i+1)
		if i = skip(data, start); i < 0 || !f(key, data[start:i]) {
			return false
		}
		i = blank(data, i)
		if i >= len(data) {
			return false
		}
		switch data[i] {
		case ',':
			i = blank(data, i+1)
		case '}':
			return blank(data, i+1) == len(data)
		default:
			return false
		}
	}
}

// array calls f for each element of a JSON array. null counts as an empty array.
func array(data []byte, f func(val []byte) bool) bool {
	if isNull(data) {
		return true
	}
	if len(data) == 0 || data[0] != '[' {
		return false
	}
	i := blank(data, 1)
	if i < len(data) && data[i] == ']' {
		return i+1 == len(data)
	}
	for {
		start := i
		if i = skip(data, i); i < 0 || !f(data[start:i]) {
			return false
		}
		i = blank(data, i)
		if i >= len(data) {
			return false
		}
		switch data[i] {
		case ',':
			i = blank(data, i+1)
		case ']':
			return i+1 == len(data)
		default:
			return false
		}
	}
}

func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skip returns the end of the value that begins at i, or -1 if it is incomplete.
func skip(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				if i = skipString(b, i); i < 0 {
					return -1
				}
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return -1
	}
	start := i
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i < len(b); {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return -1
		}
		k := i + j
		slashes := 0
		for k-slashes > i && b[k-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return k + 1
		}
		i = k + 1
	}
	return -1
}

func isNull(v []byte) bool { return string(v) == "null" }

// text decodes a string into s; null leaves s unchanged.
func text(v []byte, s *string) bool {
	if len(v) < 2 || v[0] != '"' {
		return isNull(v)
	}
	in := v[1 : len(v)-1]
	if !utf8.Valid(in) {
		return json.Unmarshal(v, s) == nil
	}
	first := bytes.IndexByte(in, '\\')
	if first < 0 {
		*s = string(in)
		return true
	}
	var b strings.Builder
	b.Grow(len(in))
	for first >= 0 {
		b.Write(in[:first])
		if first+1 >= len(in) {
			return false
		}
		c := in[first+1]
		switch c {
		case '"', '\\', '/':
		case 'n':
			c = '\n'
		case 't':
			c = '\t'
		case 'r':
			c = '\r'
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		default: // \u, and invalid escapes
			return json.Unmarshal(v, s) == nil
		}
		b.WriteByte(c)
		in = in[first+2:]
		first = bytes.IndexByte(in, '\\')
	}
	b.Write(in)
	*s = b.String()
	return true
}

func integer(v []byte, n *int64) bool {
	x, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return isNull(v)
	}
	*n = x
	return true
}

func number(v []byte, f **float64) bool {
	if isNull(v) {
		*f = nil
		return true
	}
	x, err := strconv.ParseFloat(string(v), 64)
	*f = &x
	return err == nil
}

func boolean(v []byte, b *bool) bool {
	switch string(v) {
	case "true", "false":
		*b = v[0] == 't'
		return true
	}
	return isNull(v)
}

func moment(v []byte, t *time.Time) bool {
	if len(v) < 2 || v[0] != '"' {
		return false
	}
	x, err := time.Parse(time.RFC3339Nano, string(v[1:len(v)-1]))
	*t = x
	return err == nil
}

// other decodes rare types of values.
func other(v []byte, x any) bool { return json.Unmarshal(v, x) == nil }
