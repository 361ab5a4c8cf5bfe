package server

import (
	"strings"
	"testing"
)

func render(parts ...string) string {
	var out strings.Builder
	s := screen{out: func(b []byte) { out.Write(b) }}
	for _, p := range parts {
		s.write([]byte(p))
	}
	s.flush()
	return out.String()
}

func TestScreen(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ntext":                        "plain\ntext",
		"a\r\nb\r\n":                         "a\nb\n",
		"10%\r20%\r\x1b[K30%":                "30%",
		"\x1b[1;31mred\x1b[m":                "red",
		"abc\b\bX":                           "aXc",
		"ab\x1b[3Cc":                         "ab   c",
		"\xff\xfe\rx":                        "x\xfe",
		"a\x1b]0;never ended\nb":             "a\nb",
		"a\x1b[?1049hfull":                   "afull",
		"a\x1b[?1049hfull\x1b[?1049lb":       "ab",
		"\x1b[?1049hold\n\x1b[2J\x1b[Hnew":   "new",
		"\x1b[999999999999999999999999999Cx": strings.Repeat(" ", terminalCols) + "x",
		"\x1b":                               "",
		"\x00":                               "\x00",
	} {
		if got := render(in); got != want {
			t.Errorf("%.40q: %.60q, want %.60q", in, got, want)
		}
		if got := render(strings.Split(in, "")...); got != want {
			t.Errorf("%.40q in parts: %.60q, want %.60q", in, got, want)
		}
	}
}

// Nothing that is written makes the screen keep more than its limits, or depends on how it is cut
// into reads.
func FuzzScreen(f *testing.F) {
	f.Add("a\r\x1b[Kb\b\x1b[?1049h\x1b]0;x\x07\xc3\x28\n", 3)
	f.Fuzz(func(t *testing.T, in string, cut int) {
		cut = min(max(cut, 0), len(in))
		if a, b := render(in), render(in[:cut], in[cut:]); a != b {
			t.Errorf("%q and, cut at %d, %q", a, cut, b)
		}
	})
}

// Each byte, at each place of a word, ends plain text or does not.
func TestPlainLen(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			b := []byte("plain ä text, long enough")
			b[at] = byte(c)
			want := len(b)
			if c < ' ' && c != '\n' && c != '\t' && c != 0 || c == 0x7f {
				want = at
			}
			if got := plainLen(b); got != want {
				t.Errorf("%#x at %d: %d, want %d", c, at, got, want)
			}
		}
	}
}

func BenchmarkScreen(b *testing.B) {
	for name, text := range map[string]string{"lines": strings.Repeat("0123456789 a line of text of the usual length\n", 700),
		"breaks": strings.Repeat("\n", 32<<10)} {
		b.Run(name, func(b *testing.B) {
			s := screen{out: func([]byte) {}}
			in := []byte(text)
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				s.write(in)
			}
		})
	}
}
