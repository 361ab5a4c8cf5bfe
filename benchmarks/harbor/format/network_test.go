package format

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

func TestAllowedHosts(t *testing.T) {
	for in, want := range map[string]string{
		"example.com": "example.com", " API.Example.COM. ": "api.example.com", "*.x.org": "*.x.org",
		"1.2.3.4": "1.2.3.4", "::1": "::1", "[2001:db8::1]": "2001:db8::1",
		"10.0.0.0/8": "10.0.0.0/8", "2001:db8::/32": "2001:db8::/32", "localhost": "localhost", "a_b.c": "a_b.c",
	} {
		if got, err := NormalizeHost(in); got != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"": "is empty", "https://x.org": "is a URL", "x.org:80": "has a port", "x.org/a": "has a path",
		"10.1.0.0/8": "is 10.0.0.0/8 meant?", "*.1.2.3.4": "a wildcard of an address",
		"a.*.org": "not a leading", "*": "not a leading", "-a.org": "is no host's name", "a..b": "is no host's name",
		"fe80::1%eth0": "has a zone", "a b": "is no host's name",
	} {
		if _, err := NormalizeHost(in); err == nil {
			t.Errorf("%q: no error", in)
		} else {
			has(t, err.Error(), want)
		}
	}
}

// An empty list denies everything; a list goes with the mode allowlist only.
func TestNetworkModes(t *testing.T) {
	for text, want := range map[string]sandbox.Network{
		"network_mode='public'":                                     {Mode: "public"},
		"network_mode='no-network'":                                 {Mode: "none"},
		"network_mode='allowlist'":                                  {Mode: "none"},
		"network_mode='allowlist'\nallowed_hosts=[]":                {Mode: "none"},
		"network_mode='allowlist'\nallowed_hosts=['a.org','A.org']": {Mode: "allow", Allow: []string{"a.org"}},
	} {
		if got := load(t, "[environment]\n"+text, nil).Environment.Network; !cmp.Equal(got, want) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	for _, mode := range []string{"public", "no-network"} {
		has(t, loadError(t, "[environment]\nnetwork_mode='"+mode+"'\nallowed_hosts=['a.org']", nil),
			`it goes with "allowlist" only`)
		has(t, loadError(t, "[agent]\nnetwork_mode='"+mode+"'\nallowed_hosts=[]", nil), `it goes with "allowlist" only`)
	}
	has(t, loadError(t, "[environment]\nnetwork_mode='allowlist'\nallowed_hosts=['http://a']", nil),
		`task.toml:1:2: environment: allowed_hosts: "http://a" is a URL`)
}
