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
