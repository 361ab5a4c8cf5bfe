package html2text

import (
	"strings"
	"unicode"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// collapse replaces each run of white space by one space.
func collapse(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	space := false
	for _, r := range s {
		if pyrepr.IsSpace(r) {
			space = true
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	if space {
		b.WriteByte(' ')
	}
	return b.String()
}

// escapeText escapes line beginnings that look like list items, and backslashes that look like
// escapes.
func escapeText(s string) string {
	s = escapeBackslashes(s)
	if !strings.ContainsAny(s, ".+-") {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = escapeLine(l, i+1 < len(lines))
	}
	return strings.Join(lines, "\n")
}

// escapeLine escapes 1. and + and - at the start of a line if white space follows. more says that
// the line has an end.
func escapeLine(l string, more bool) string {
	rest := strings.TrimLeftFunc(l, pyrepr.IsSpace)
	at := len(l) - len(rest)
	if rest == "" {
		return l
	}
	spaceAt := func(i int) bool {
		if i >= len(rest) {
			return more
		}
		for _, r := range rest[i:] {
			return pyrepr.IsSpace(r)
		}
		return false
	}
	switch c := rest[0]; {
	case c == '+' && spaceAt(1), c == '-' && (spaceAt(1) || strings.HasPrefix(rest[1:], "-")):
		return l[:at] + `\` + rest
	default:
		n := len(rest) - len(strings.TrimLeftFunc(rest, unicode.IsDigit))
		if n > 0 && n < len(rest) && rest[n] == '.' && spaceAt(n+1) {
			return l[:at] + rest[:n] + `\` + rest[n:]
		}
	}
	return l
}

// escapeBackslashes doubles backslashes in front of special characters.
func escapeBackslashes(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("`*_{}[]()#+-.!\\", s[i+1]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// escapeAll escapes brackets, for addresses.
func escapeAll(s string) string {
	if !strings.ContainsAny(s, `\[]()`) {
		return s
	}
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, "(", `\(`, ")", `\)`).Replace(s)
}

// absolute reports whether an address is absolute.
func absolute(s string) bool {
	i := strings.Index(s, ":")
	if i < 1 || !letter(s[0]) {
		return false
	}
	for _, c := range []byte(s[:i]) {
		if !letter(c) && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return true
}
