package command

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// A tail keeps the last bytes of what is written to it, and counts all.
type tail struct {
	mu   sync.Mutex
	max  int
	buf  []byte
	size int64
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	t.size += int64(n)
	if len(p) > t.max {
		p = p[len(p)-t.max:]
	}
	if over := len(t.buf) + len(p) - t.max; over > 0 && len(t.buf)+len(p) > 2*t.max {
		t.buf = append(t.buf[:0], t.buf[over:]...) // at most every max bytes, so that writing stays cheap
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

// text is what is kept, as valid UTF-8 that begins at a character.
func (t *tail) text() (s string, cut int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf
	if len(b) > t.max {
		b = b[len(b)-t.max:]
	}
	cut = t.size - int64(len(b))
	if cut > 0 {
		for len(b) > 0 && !utf8.RuneStart(b[0]) {
			b, cut = b[1:], cut+1
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), cut
}

// last is the end of the text for an error: few lines, without control characters.
func (t *tail) last() string {
	s, _ := t.text()
	return plain(strings.TrimSpace(s), 240) // no more: reports cut long texts behind, and the end is what matters
}

// plain makes one line of the last bytes of s, control characters replaced: what a program prints
// may end on a terminal.
func plain(s string, max int) string {
	if len(s) > max {
		s = s[len(s)-max:]
		for len(s) > 0 && !utf8.RuneStart(s[0]) {
			s = s[1:]
		}
		s = "…" + s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return '⏎'
		case r == '\t':
			return ' '
		case r < 0x20 || r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x200e,
			r == 0x200f, r == 0x061c:
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// excerpt is the beginning of a line for an error, as a quoted text.
func excerpt(line []byte) string {
	const max = 80
	if len(line) <= max {
		return fmt.Sprintf("%+q", line)
	}
	return fmt.Sprintf("%+q…", line[:max])
}
