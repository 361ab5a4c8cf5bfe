package libxml

import (
	"fmt"
	"strings"
	"testing"
)

// hostile are pages that take time or memory which grow faster than they do, where a rule is
// followed as it is written.
var hostile = map[string]func(n int) string{
	"deep":        func(n int) string { return strings.Repeat("<b><i>", n) },
	"deep, ended": func(n int) string { return strings.Repeat("<b>", n) + strings.Repeat("</b>", n) },
	"stray ends":  func(n int) string { return strings.Repeat("<b>", n) + strings.Repeat("</i>", n) },
	"ends that do not reach": func(n int) string {
		return "<p><div>" + strings.Repeat("<b>", n) + strings.Repeat("</p>", n)
	},
	"ends of tables": func(n int) string {
		return strings.Repeat("<tr><table><b>", n) + strings.Repeat("</tr></td>", n)
	},
	"cut tags":           func(n int) string { return strings.Repeat("<b\x00", n) + strings.Repeat("</b></i>", n) },
	"attributes":         func(n int) string { return "<p " + numbered(n, "a%d=%[1]d ") + ">" },
	"equal attributes":   func(n int) string { return "<p " + strings.Repeat("a=1 ", n) + ">" },
	"names":              func(n int) string { return numbered(n, "<x%d></x%[1]d></y%[1]d>") },
	"instructions":       func(n int) string { return "<p>" + strings.Repeat("<?", n) + ">" },
	"ends without names": func(n int) string { return "<p>" + strings.Repeat("</", n) + ">" },
	"declarations":       func(n int) string { return "<p>" + strings.Repeat("<!x ", n) },
	"comments":           func(n int) string { return "<p>" + strings.Repeat("<!--!>-", n) },
	"dashes":             func(n int) string { return "<p><!--" + strings.Repeat("-", n) },
	"quotes":             func(n int) string { return "<p>" + strings.Repeat(`<a '>"'<b ">'"`, n) + `">'>` },
	"quotes and NUL": func(n int) string {
		return "<p>" + strings.Repeat("<a\x00", n) + `"` + strings.Repeat("x", n) + `">`
	},
	"one quote":   func(n int) string { return "<p>" + strings.Repeat(`<a b="`, n) },
	"references":  func(n int) string { return "<p>" + strings.Repeat("&a", n) },
	"numbers":     func(n int) string { return "<p>" + strings.Repeat("&#", n) + strings.Repeat("1", n) },
	"scripts":     func(n int) string { return "<script>" + strings.Repeat("</scriptx>", n) },
	"script":      func(n int) string { return "<script>" + strings.Repeat("</", n) },
	"white space": func(n int) string { return "<html>" + strings.Repeat(" ", n) },
	"open angles": func(n int) string { return strings.Repeat("<", n) },
	"doctypes":    func(n int) string { return "<p>" + strings.Repeat("<!doctype '", n) },
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestLinear counts what searches look at, on pages of a chunk and of many.
func TestLinear(t *testing.T) {
	for name, page := range hostile {
		size := 1 << 20
		switch name {
		case "deep", "quotes and NUL":
			size = 5 << 20
		case "attributes":
			size = 14 << 20 // which are a million
		}
		s := page(10_000)
		s = page(size / len(s) * 10_000)
		root, work := parse(s)
		if work > 10*len(s)+1000 {
			t.Errorf("%s: %d bytes and elements were looked at on a page of %d bytes", name, work, len(s))
		}
		// What is printed is bounded, too.
		if n := len(root.Prettify()); n > maxIndent+20*len(s)+1000 {
			t.Errorf("%s: %d bytes are printed of %d", name, n, len(s))
		}
	}
}

func TestIndentIsBounded(t *testing.T) {
	const n = 40_000
	got := Parse(strings.Repeat("<b>", n)).Prettify()
	if len(got) > maxIndent+40*n {
		t.Errorf("%d bytes", len(got))
	}
	if a, b := strings.Count(got, "<b>"), strings.Count(got, "</b>"); a != n || b != n {
		t.Errorf("%d start tags, %d end tags", a, b)
	}
}

func FuzzParse(f *testing.F) {
	for _, page := range hostile {
		f.Add(page(3))
	}
	for _, s := range []string{"", "\x00", "<!DOCTYPE html PUBLIC '\xff' \"\xc3", "<p a='&#0;\xed\xa0\x80",
		"<pre><!doctype><?a\xff b><!-- --></pre>", "</html> x", "\ufeff<?é ñ×>&é;",
		"<meta charset=x><meta http-equiv=content-type content=';charset=x'>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		root, work := parse(s)
		if work > 20*len(s)+1000 {
			t.Errorf("%d bytes and elements were looked at", work)
		}
		text := root.Prettify()
		if n := len(text); n > 1000+(20+len(s))*len(s)*2 {
			t.Errorf("%d bytes from %d", n, len(s))
		}
		if again := Parse(s).Prettify(); again != text {
			t.Error("a second time differs")
		}
	})
}
