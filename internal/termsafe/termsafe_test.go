package termsafe

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func cleaned(t testing.TB, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, p := range parts {
		if n, err := w.Write([]byte(p)); err != nil || n != len(p) {
			t.Fatalf("%d, %v", n, err)
		}
	}
	w.Close()
	return b.String()
}

// cases are what a program writes, and what the terminal gets.
var cases = []struct{ name, in, out string }{
	{"text", "grün ✓ 字\r\n\tx\b", "grün ✓ 字\r\n\tx\b"},
	{"colours", "\x1b[1;38;5;208mx\x1b[38:2::1:2:3m\x1b[0m\x1b[m", "\x1b[1;38;5;208mx\x1b[38:2::1:2:3m\x1b[0m\x1b[m"},
	{"cursor", "\x1b[2;3H\x1b[K\x1b[2J\x1b[?25l\x1b[A\x1b[12d\x1b7\x1b8\x1bM", "\x1b[2;3H\x1b[K\x1b[2J\x1b[?25l\x1b[A\x1b[12d\x1b7\x1b8\x1bM"},
	{"full screen", "\x1b[?1049h\x1b[1;24r\x1b[?1h\x1b=\x1b[4l", "\x1b[?1049h\x1b[1;24r\x1b[?1h\x1b=\x1b[4l"},
	{"line drawing", "\x1b(0lqk\x1b(B\x0e\x0f", "\x1b(0lqk\x1b(B\x0e\x0f"},
	{"other character sets", "a\x1b(Kb\x1b*0c\x1b%Gd", "abcd"},
	{"cursor shape", "\x1b[5 q\x1b[!p", "\x1b[5 q\x1b[!p"},
	{"mouse", "\x1b[?1000;1006h", "\x1b[?1000h\x1b[?1006h"},
	{"some modes", "\x1b[?25;1004;3l", "\x1b[?25l"},
	{"title", "a\x1b]0;rm -rf\x07b\x1b]2;x\x1b\\c", "abc"},
	{"clipboard", "a\x1b]52;c;cm0gLXJmIC8K\x07b", "ab"},
	{"clipboard read", "\x1b]52;c;?\x1b\\", ""},
	{"link", "\x1b]8;;http://evil/\x1b\\good\x1b]8;;\x1b\\", "good"},
	{"colour query", "\x1b]11;?\x07\x1b]4;1;?\x1b\\", ""},
	{"notification", "\x1b]9;hi\x07\x1b]777;notify;a;b\x07\x1b]1337;File=:AAAA\x07", ""},
	{"device attributes", "\x1b[c\x1b[>c\x1b[=c\x1b[0c\x1bZ\x05", ""},
	{"status", "\x1b[5n\x1b[6n\x1b[?6n\x1b[x\x1b[?996n", ""},
	{"mode query", "\x1b[?2026$p\x1b[4$p\x1b[>q\x1b[?u\x1b[?4m", ""},
	{"window", "\x1b[21t\x1b[8;1;1t\x1b[2t\x1b[18t", ""},
	{"printing", "\x1b[5i\x1b[4i\x1b[?5i", ""},
	{"keyboard", "\x1b[>4;2m\x1b[>1u\x1b[=1u\x1b[<u\x1b[20h\x1b[2h", ""},
	{"held screen", "\x1b[?2026h\x1b[?5h\x1b[?3h\x1b[?1004h\x1b[?9h\x1b[?2031h", ""},
	{"device control", "a\x1bP$q m\x1b\\b\x1bP+q544e\x1b\\c\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\d", "abcd"},
	{"picture", "\x1bPq#0;2;0;0;0~~\x1b\\", ""},
	{"other strings", "\x1b_Gf=24;AAAA\x1b\\\x1b^x\x1b\\\x1bXy\x1b\\z", "z"},
	{"reset", "\x1bc\x1b#8\x1b F\x1b[61\"p\x1bn", ""},
	{"rectangles", "\x1b[65;1;1;9;9$x\x1b[1;1;1;1;1;1*y", ""},
	{"huge number", "\x1b[99999999999b\x1b[10000Bx", "x"},
	{"long sequence", "\x1b[" + strings.Repeat("1;", 100) + "mx", "x"},
	{"control in a sequence", "\x1b[3\n1mx", "\n\x1b[31mx"},
	{"cut sequence", "\x1b[3\x1b[4mx\x1b[3\x18y\x1b[3\x1az", "\x1b[4mxyz"},
	{"character in a sequence", "\x1b[3äm", "äm"},
	{"sequence in a string", "\x1b]0;\x1b[31mx\x07y", "\x1b[31mx\x07y"},
	{"string without an end", "\x1b]0;" + strings.Repeat("x", maxString-2) + "abcd", "abcd"},
	{"cut string", "\x1b]0;a\x18b", "b"},
	{"c1", "a\u009b31mb\u009d0;t\u009cc\u0090d\u0085", "a31mb0;tcd"},
	{"raw c1", "a\x9b6n\x9d52;c;x\x07", "a\uFFFD6n\uFFFD52;c;x\x07"},
	{"bidi", "a\u202eb\u2066c\u200fd\u061ce", "abcde"},
	{"tags and separators", "a\u2028b\ufeffc\U000e0041d", "abcd"},
	{"invalid", "a\xffb\xe2\x82c\xf0\x9f\x98\n", "a\uFFFDb\uFFFDc\uFFFD\n"},
	{"invalid, then a sequence", "\xe2\x1b[6nx\xe2\x1b]52;c;x\x07y", "\uFFFDx\uFFFDy"},
	{"nothing", "\x00\x7f\x11\x13\x04", ""},
	{"incomplete", "a\x1b[31", "a"},
	{"incomplete character", "a\xe2\x82", "a\uFFFD"},
}

func TestCases(t *testing.T) {
	for _, c := range cases {
		if got := cleaned(t, c.in); norm(got) != norm(c.out) {
			t.Errorf("%s: %q becomes %q, want %q", c.name, c.in, got, c.out)
		}
		if len(c.in) > 1000 {
			continue
		}
		for i := range len(c.in) { // whatever is read at once
			if got := cleaned(t, c.in[:i], c.in[i:]); norm(got) != norm(c.out) {
				t.Errorf("%s, cut at %d: %q", c.name, i, got)
			}
		}
		if got := cleaned(t, strings.Split(c.in, "")...); norm(got) != norm(c.out) {
			t.Errorf("%s, byte by byte: %q", c.name, got)
		}
	}
}

// norm joins replacement characters: how many stand for an incomplete character is not fixed.
func norm(s string) string { return regexp.MustCompile("\uFFFD+").ReplaceAllString(s, "\uFFFD") }

func TestReset(t *testing.T) {
	w := NewWriter(new(bytes.Buffer))
	w.Write([]byte("plain text\n"))
	if b := w.Reset(); b != nil {
		t.Errorf("after text: %q", b)
	}
	w.Write([]byte("\x1b[?25l\x1b[?1049h\x1b[?2004h\x1b[?2004l\x1b[?1000h\x1b[31m"))
	got := string(w.Reset())
	if !strings.HasPrefix(got, "\x1b[?25h\x1b[?1000l\x1b[?1049l\x1b[4l") || strings.Contains(got, "2004") {
		t.Errorf("%q", got)
	}
	if again := cleaned(t, got); again != got {
		t.Errorf("%q is not safe itself: %q", got, again)
	}
}

// safe is everything that may come out, written independently of the code.
var safe = regexp.MustCompile(`^(?:[\x07-\x0f\x20-\x7e]|[^\x00-\x9f]|\x1b[78DEMH=>]|\x1b[()][0B]|` +
	`\x1b\[[0-9;:]{0,64}[@A-MPSTXZa-b` + "`" + `d-gmrsu]|\x1b\[4?[0-9;:]*[hl]|\x1b\[[0-9;:]* q|\x1b\[!p|` +
	`\x1b\[\?[0-9;:]*[JK]|\x1b\[\?(?:1|6|7|12|25|47|1000|1002|1003|1006|1047|1048|1049|2004)[hl])*$`)

func FuzzWriter(f *testing.F) {
	for _, c := range cases {
		f.Add([]byte(c.in), 1)
	}
	f.Fuzz(func(t *testing.T, in []byte, at int) {
		whole := cleaned(t, string(in))
		if !safe.MatchString(whole) || !utf8.ValidString(whole) || strings.ContainsFunc(whole, misleading) {
			t.Fatalf("%q becomes %q", in, whole)
		}
		if again := cleaned(t, whole); again != whole {
			t.Fatalf("%q becomes %q, and that %q", in, whole, again)
		}
		if at = max(0, min(at, len(in))); cleaned(t, string(in[:at]), string(in[at:])) != whole {
			t.Fatalf("%q: cut at %d it is another", in, at)
		}
	})
}
