package workspace

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// The vectors are those of DeerFlow's rules of truncation.
func TestCut(t *testing.T) {
	for _, n := range []int{0, 1, 19_999, 20_000} {
		if got := cutMiddle(strings.Repeat("x", n), 20_000); len(got) != n {
			t.Errorf("%d characters became %d", n, len(got))
		}
	}
	got := cutMiddle(strings.Repeat("x", 30_000), 20_000)
	// The marker has 49 characters if its number has five digits.
	if !strings.Contains(got, "\n... [middle truncated: 10049 chars skipped] ...\n") || len(got) != 20_000 {
		t.Errorf("%d characters: %.60q", len(got), got[9_950:])
	}
	if got := cutMiddle(strings.Repeat("ü", 100), 10); got != strings.Repeat("ü", 10) {
		t.Errorf("less than the marker: %q", got)
	}
	if got := cutMiddle(strings.Repeat("x", 100), 0); len(got) != 100 {
		t.Error("0 is no limit")
	}
	if got := cutHead(strings.Repeat("ü", 1000), 1000, 200, "hint"); utf8.RuneCountInString(got) > 200 ||
		!strings.HasSuffix(got, " of 1000 chars. hint] ...") {
		t.Error(got)
	}
	if got := cutHead("abc", 1000, 2, "hint"); got != "ab" {
		t.Error(got)
	}
}
