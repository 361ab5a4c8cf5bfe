package sandboxed_test

import (
	"testing"

	"github.com/evalrun/evalrun/benchmarks/sandboxed"
)

func TestLinkTarget(t *testing.T) {
	for _, tt := range []struct{ link, to string }{
		{"b", "/w/b"}, {"./b/", "/w/b"}, {"../b", "/b"}, {"../../../b", "/b"}, {"..", "/"}, {"", "/w"},
		{"/etc/passwd", "/etc/passwd"}, {"/../etc", "/etc"}, {"//b//c", "/b/c"},
		{"b/..", ""}, {"/b/../etc", ""}, {"../b/../c", ""},
	} {
		if to, ok := sandboxed.LinkTarget("/w/a", tt.link); to != tt.to || ok != (tt.to != "") {
			t.Errorf("%q leads to %q, %v; want %q", tt.link, to, ok, tt.to)
		}
	}
	for _, tt := range []struct {
		p, dir string
		want   bool
	}{{"/a", "/a", true}, {"/a/b", "/a", true}, {"/a/b", "/a/", true}, {"/ab", "/a", false}, {"/a", "/a/b", false},
		{"/a", "/", true}} {
		if got := sandboxed.Within(tt.p, tt.dir); got != tt.want {
			t.Errorf("%s within %s: %v", tt.p, tt.dir, got)
		}
	}
}
