package web_test

import (
	"testing"

	"github.com/evalrun/evalrun/benchmarks/web"
)

func TestAddresses(t *testing.T) {
	for _, s := range []string{"http://example.org", "https://a.b.example.org:8443/x?y#z", "http://127.0.0.1/",
		"http://127.0.0.1./", "http://[::1]:80/", "http://[::ffff:127.0.0.1]/",
		"http://localhost:7770/", "https://bücher.example/", "http://1and1.example/", "http://3.example.x3/"} {
		if u, err := web.Address(s); err != nil || u.String() == "" {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []string{"", "example.org", "file:///etc/passwd", "javascript:alert(1)", "data:text/html,x",
		"chrome://version", "about:blank", "ftp://example.org/", "http://", "http:///x", "http://:80/",
		"http://0x7f.1/", "http://127.1/", "http://2130706433/", "http://0177.0.0.1/", "http://0x7f000001/",
		"http://127.0.0.0x1/", "http://１２７.0.0.1/", "http://127.0.0.１/", "http://127。0。0。1/",
		"http://999.1.1.1/", "http://./", "http://%31%32%37.0.0.1/", "http://exa mple.org/", "http://example.org:port/",
		"http://[::1/", "http://example.org\x00/", "HTTP\n://example.org"} {
		if _, err := web.Address(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}
