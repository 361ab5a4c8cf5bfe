package command

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// A tail keeps the last bytes written to it and counts all bytes.
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
		t.buf = append(t.buf[:0], t.buf[over:]...) // at most once per max bytes, so that writing stays cheap
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

// text returns the kept bytes as valid UTF-8 starting at a character boundary.
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

// last returns the end of the text for an error message: a few lines without control characters.
func (t *tail) last() string {
	s, _ := t.text()
	// kept short, because reports cut the end of long texts, and the end matters here
	return plain(strings.TrimSpace(s), 240)
}

// plain returns the last bytes of s as one line with control characters replaced, because the
// output of a program may be printed to a terminal.
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

// excerpt returns the start of a line as quoted text for an error message.
func excerpt(line []byte) string {
	const max = 80
	if len(line) <= max {
		return fmt.Sprintf("%+q", line)
	}
	return fmt.Sprintf("%+q…", line[:max])
}
