package html2text

import (
	"html"
	"strconv"
	"strings"
)

// A sink receives the parts of a page in order.
type sink interface {
	start(tag string, attrs map[string]string)
	end(tag string)
	text(s string)
	entity(s string) // one decoded character reference
}

// scan splits HTML into tags and text like Python's parser, which treats each character reference
// as a separate piece.
func scan(s string, to sink) {
	for len(s) > 0 {
		i := strings.IndexAny(s, "<&")
		if i < 0 {
			to.text(s)
			return
		}
		if i > 0 {
			to.text(s[:i])
			s = s[i:]
		}
		if s[0] == '&' {
			n, c := reference(s)
			if n == 0 {
				to.text("&")
				n = 1
			} else {
				to.entity(c)
			}
			s = s[n:]
			continue
		}
		s = s[markup(s, to):]
	}
}

// markup handles text that begins with < and returns its length.
func markup(s string, to sink) int {
	switch {
	case strings.HasPrefix(s, "<!--"):
		if i := strings.Index(s[4:], "-->"); i >= 0 {
			return 4 + i + 3
		}
		return len(s)
	case strings.HasPrefix(s, "<!"), strings.HasPrefix(s, "<?"):
		if i := strings.IndexByte(s, '>'); i >= 0 {
			return i + 1
		}
		return len(s)
	case strings.HasPrefix(s, "</") && len(s) > 2 && letter(s[2]):
		end := strings.IndexByte(s, '>')
		if end < 0 {
			return len(s)
		}
		to.end(strings.ToLower(name(s[2:end])))
		return end + 1
	case len(s) > 1 && letter(s[1]):
		tag := name(s[1:])
		attrs, n, closed := attributes(s[1+len(tag):])
		if n < 0 { // unterminated
			to.text(s)
			return len(s)
		}
		n += 1 + len(tag)
		tag = strings.ToLower(tag)
		to.start(tag, attrs)
		if closed {
			to.end(tag)
		} else if tag == "script" || tag == "style" {
			n += raw(s[n:], tag, to)
		}
		return n
	}
	to.text("<")
	return 1
}

// raw skips the content of a script or style.
func raw(s, tag string, to sink) int {
	for from := 0; ; {
		i := strings.Index(s[from:], "</")
		if i < 0 {
			to.text(s)
			return len(s)
		}
		from += i + 2
		if len(s) >= from+len(tag) && strings.EqualFold(s[from:from+len(tag)], tag) {
			to.text(s[:from-2])
			return from - 2
		}
	}
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// name returns the tag name at the start of s.
func name(s string) string {
	if i := strings.IndexAny(s, " \t\n\r\f/>"); i >= 0 {
		return s[:i]
	}
	return s
}

// attributes parses attributes up to the end of the tag. n is the length including the end, or -1
// if there is none. closed reports whether the tag ends with />.
func attributes(s string) (attrs map[string]string, n int, closed bool) {
	const space = " \t\n\r\f"
	for i := 0; ; {
		for i < len(s) && (strings.IndexByte(space, s[i]) >= 0 || s[i] == '/') {
			closed = s[i] == '/'
			i++
		}
		if i >= len(s) {
			return nil, -1, false
		}
		if s[i] == '>' {
			return attrs, i + 1, closed
		}
		from := i
		for i < len(s) && (i == from || s[i] != '=') && s[i] != '>' && s[i] != '/' &&
			strings.IndexByte(space, s[i]) < 0 {
			i++
		}
		key, value := strings.ToLower(s[from:i]), ""
		j := i
		for j < len(s) && strings.IndexByte(space, s[j]) >= 0 {
			j++
		}
		if j < len(s) && s[j] == '=' {
			j++
			for j < len(s) && strings.IndexByte(space, s[j]) >= 0 {
				j++
			}
			if j >= len(s) {
				return nil, -1, false
			}
			if q := s[j]; q == '"' || q == '\'' {
				end := strings.IndexByte(s[j+1:], q)
				if end < 0 {
					return nil, -1, false
				}
				value, j = s[j+1:j+1+end], j+1+end+1
			} else {
				from := j
				for j < len(s) && s[j] != '>' && strings.IndexByte(space, s[j]) < 0 {
					j++
				}
				value = s[from:j]
			}
			i = j
		}
		if attrs == nil {
			attrs = map[string]string{}
		}
		if key == "href" || key == "title" || key == "start" { // other attributes are not used
			attrs[key] = html.UnescapeString(value)
		}
		closed = false
	}
}

// reference decodes &name; or &#number;. n is its length, or 0 if there is none.
func reference(s string) (n int, c string) {
	end := strings.IndexByte(s[:min(len(s), 40)], ';')
	if end < 2 {
		return 0, ""
	}
	c = html.UnescapeString(s[:end+1])
	if c == s[:end+1] {
		return 0, ""
	}
	return end + 1, plain(c)
}

// plain returns the converter's replacement for characters that it does not keep.
func plain(c string) string {
	for _, r := range c {
		if s, ok := plainly[r]; ok {
			return s
		}
	}
	return c
}

var plainly = map[rune]string{
	'\u2019': "'", '\u2018': "'", '\u201d': `"`, '\u201c': `"`, '\u00a9': "(C)", '\u2014': "--", '\u2013': "-",
	'\u2192': "->", '\u2190': "<-", '\u00b7': "*",
}

func number(s string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	return n, err == nil
}
