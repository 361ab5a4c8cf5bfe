package text

import (
	"strings"
	"unicode/utf8"
)

// Clean makes s safe to print on a terminal. The text comes from pages, models and programs and may
// contain escape sequences. Clean removes colour codes, control characters (C0 except newline and
// tab, DEL, C1) and characters that change the reading direction. It replaces a carriage return
// with a newline and invalid UTF-8 with U+FFFD.
func Clean(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == 0x1b:
			n = max(n, csi(s[i:]))
		case r == '\r':
			if !strings.HasPrefix(s[i+1:], "\n") {
				b.WriteByte('\n')
			}
		case r == '\n' || r == '\t' || !control(r):
			b.WriteRune(r) // invalid UTF-8 becomes U+FFFD
		}
		i += n
	}
	return b.String()
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}

// control reports whether r could control a terminal or mislead a reader.
func control(r rune) bool {
	switch {
	case r < 0x20, r >= 0x7f && r <= 0x9f: // C0, DEL, C1
	// bidi
	case r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
	// separators, byte order mark, tags
	case r == 0x2028, r == 0x2029, r == 0xfeff, r >= 0xe0000 && r <= 0xe007f:
	default:
		return false
	}
	return true
}

// csi returns the length of the control sequence at the start of s, or 0. Unreasonably long
// sequences are not recognized, so that no text can be hidden in one.
func csi(s string) int {
	if len(s) < 3 || s[1] != '[' {
		return 0
	}
	for i := 2; i < len(s) && i < 32; i++ {
		switch c := s[i]; {
		case c >= 0x40 && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x3f:
			return 0
		}
	}
	return 0
}

// line is Clean for single-line output.
func line(s string) string {
	s = Clean(s)
	if !strings.ContainsAny(s, "\n\t") {
		return s
	}
	return strings.Join(strings.Fields(s), " ")
}

// cut truncates a line to n characters.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	i := 0
	for range max(n-1, 0) {
		_, w := utf8.DecodeRuneInString(s[i:])
		i += w
	}
	return s[:i] + "…"
}

// middle truncates s to at most n characters by removing its middle, because the end of an error
// message names the cause.
func middle(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	head := n / 2
	return string(r[:head]) + "…" + string(r[len(r)-(n-head-1):])
}

// md escapes s for use in a Markdown table.
func md(s string) string {
	return mdEscapes.Replace(line(s))
}

var mdEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "<",
	"&lt;", ">", "&gt;", "&", "&amp;", "#", `\#`)
