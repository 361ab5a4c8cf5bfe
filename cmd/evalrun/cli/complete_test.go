package cli

import "testing"

// A shell is told only words that it cannot take for anything else.
func TestTame(t *testing.T) {
	for text, want := range map[string]bool{
		"web-form": true, "browser.path=": true, "runs/2026-11-21T093000Z-nightly": true, "HumanEval/0": true,
		"größe_2": true, "a:b,c+d@e": true, "10%": true,
		"": false, "-x": false, "=ls": false, "a b": false, "a\nb": false, "a\x1b[2J": false, "a\u202eb": false,
		"a\xff":      false,
		"$(touch x)": false, "`x`": false, "$HOME": false, `a\b`: false, "it's": false, `"`: false, "a;b": false,
		"a&": false, "a|b": false, "<a": false,
		"a>b": false, "(a)": false, "{a,b}": false, "a*": false, "a?": false, "[a]": false, "!1": false, "~root": false,
		"#a": false, "^a": false,
	} {
		if tame(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}
