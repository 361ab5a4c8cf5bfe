package egress

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

func allow(entries ...string) sandbox.Network { return sandbox.Network{Mode: "allow", Allow: entries} }

func mustParse(t testing.TB, n sandbox.Network) Policy {
	t.Helper()
	p, err := Parse(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ entry, want string }{
		{"example.org", "example.org"},
		{"  Example.ORG. ", "example.org"},
		{"*.Example.org", "*.example.org"},
		{"bücher.example", "xn--bcher-kva.example"},
		{"*.bücher.example", "*.xn--bcher-kva.example"},
		{"localhost", "localhost"},
		{"_dmarc.example.org", "_dmarc.example.org"},
		{"93.184.216.34", "93.184.216.34"},
		{"93.184.216.0/24", "93.184.216.0/24"},
		{"2A0E:B107::1", "2a0e:b107::1"},
		{"2a0e:b107::/32", "2a0e:b107::/32"},
		{"::ffff:93.184.216.34", "93.184.216.34"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"3com.example", "3com.example"},
	} {
		if got := mustParse(t, allow(tt.entry)).String(); got != "allow "+tt.want {
			t.Errorf("%q: %s", tt.entry, got)
		}
	}
	for _, tt := range []struct{ entry, why string }{
		{"", "is empty"},
		{" . ", "is empty"},
		{"https://example.org/x", `is a URL; write only its host, "example.org"`},
		{"https://me:you@example.org:8080", `"example.org"`},
		{"example.org:443", `has a port; all ports of a host are allowed together, so write only the host, "example.org"`},
		{"example.org/pip", `has a path; write only the host, "example.org"`},
		{"[2a0e:b107::1]", `is in brackets; write the address without them, "2a0e:b107::1"`},
		{"[2a0e:b107::1]:443", "is in brackets"},
		{"93.184.216.34/24", "has bits set beyond its prefix; write 93.184.216.0/24, or the address alone"},
		{"93.184.216.0/33", "is no length of a prefix"},
		{"::ffff:10.0.0.0/104", "mapped"},
		{"fe80::1%eth0", "has a zone"},
		{"*", "wildcard elsewhere"},
		{"*.*.example.org", "wildcard elsewhere"},
		{"www.*.org", "wildcard elsewhere"},
		{"*example.org", "wildcard elsewhere"},
		{"*.216.34", "wildcard of an address"},
		{"93.184.216", "no address in the usual form"},
		{"0x5db8d822", "no address in the usual form"},
		{"1572395042", "no address in the usual form"},
		{"a b", "is no host"},
		{"-a.example", "hyphen"},
		{"a..b", "empty label"},
		{strings.Repeat("a", 64) + ".example", "longer than 63"},
		{strings.Repeat("a.", 130) + "example", "longer than 253"},
		{strings.Repeat("ü", 1000), "too long"},
		{"exa\x00mple.org", "is no host"},
	} {
		_, err := Parse(allow(tt.entry))
		if err == nil || !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%q: %v", tt.entry, err)
		}
	}
	if _, err := Parse(allow("good.example", "a:1", "b/c")); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("all that is wrong is said at once: %v", err)
	}
	for _, n := range []sandbox.Network{{Mode: "private"}, {Mode: "public", Allow: []string{"a.example"}},
		{Mode: "none", Allow: []string{"a.example"}}} {
		if _, err := Parse(n); err == nil {
			t.Errorf("%+v is taken", n)
		}
	}
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		n    sandbox.Network
		want string
	}{
		{sandbox.Network{}, "none"},
		{sandbox.Network{Mode: "none"}, "none"},
		{sandbox.Network{Mode: "public"}, "public"},
		{allow(), "none (an empty list)"},
		{allow("b.example", "A.example", "b.example."), "allow b.example, a.example"},
		{allow("10.0.0.0/8", "a.example", "0.0.0.0/0", "169.254.169.254"),
			"allow 10.0.0.0/8, a.example, 0.0.0.0/0, 169.254.169.254 (not public: 10.0.0.0/8, 169.254.169.254)"},
	} {
		if got := Text(tt.n); got != tt.want {
			t.Errorf("%+v: %s", tt.n, got)
		}
	}
}

// notPublic are addresses that nobody reaches without naming them, each in the forms that reach the
// same place.
var notPublic = []struct{ why, addrs string }{
	{"a loopback address", "127.0.0.1 127.255.255.254 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::"},
	{"a private address", "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fd12::1 fc00::1 fec0::1 ::ffff:10.1.2.3 " +
		"64:ff9b::a00:1 2002:a00:1::1 2002:c0a8:101::"},
	{"a link-local address", "169.254.1.1 fe80::1 ::ffff:169.254.1.1"},
	{"a metadata service", "169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16 fd00:ec2::254 " +
		"::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1"},
	{"a carrier's private address", "100.64.0.1 100.127.255.255"},
	{"a multicast address", "224.0.0.1 239.255.255.250 ff02::1"},
	{"an unspecified address", "0.0.0.0 0.1.2.3 ::"},
	{"a reserved address", "255.255.255.255 240.0.0.1 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 2001:db8::1 " +
		"2001::1 ::7f00:1 ::a00:1 64:ff9b:1::a00:1 4000::1 100::1"},
}

func TestAddr(t *testing.T) {
	public := mustParse(t, sandbox.Network{Mode: "public"})
	everything := mustParse(t, allow("0.0.0.0/0", "::/0", "*.example"))
	for _, c := range notPublic {
		for _, s := range strings.Fields(c.addrs) {
			a := netip.MustParseAddr(s)
			for _, p := range []Policy{public, everything} {
				if why := p.Addr(a, "rebound.example"); why != c.why {
					t.Errorf("%s under %s: %q, want %q", s, p, why, c.why)
				}
			}
			named := mustParse(t, allow(s))
			why := named.Addr(a)
			if never := c.why == "a multicast address" || c.why == "an unspecified address"; (why != "") != never {
				t.Errorf("%s named: %q", s, why)
			}
		}
	}
	for _, s := range strings.Fields("1.1.1.1 93.184.216.34 172.15.0.1 172.32.0.1 100.63.0.1 100.128.0.1 192.0.1.1 " +
		"2a0e:b107::1 2606:4700::1111 64:ff9b::101:101 2002:101:101::1") {
		if why := public.Addr(netip.MustParseAddr(s)); why != "" {
			t.Errorf("%s: %s", s, why)
		}
		if why := everything.Addr(netip.MustParseAddr(s)); why != "" {
			t.Errorf("%s: %s", s, why)
		}
	}
	ranges := mustParse(t, allow("10.0.0.0/8", "fd00::/8", "169.254.0.0/16", "93.184.216.0/24"))
	for s, want := range map[string]string{
		"10.1.2.3": "", "::ffff:10.1.2.3": "", "fd12::1": "", "169.254.7.7": "", "93.184.216.34": "",
		"169.254.169.254": "a metadata service", "fd00:ec2::254": "a metadata service", // named one by one only
		"192.168.1.1": "a private address", "93.184.217.1": WhyUnlist,
	} {
		if why := ranges.Addr(netip.MustParseAddr(s)); why != want {
			t.Errorf("%s: %q, want %q", s, why, want)
		}
	}
	if why := (Policy{}).Addr(netip.MustParseAddr("1.1.1.1"), "x.example"); why != WhyNone {
		t.Errorf("none: %q", why)
	}
}

func TestName(t *testing.T) {
	p := mustParse(t, allow("example.org", "*.example.net", "93.184.216.34"))
	for name, ok := range map[string]bool{
		"example.org": true, "www.example.org": false, "a.example.net": true, "a.b.example.net": true,
		"example.net":    false,
		"notexample.net": false, "example.org.evil.example": false, "org": false, "93.184.216.34": false,
	} {
		if got := p.Name(name) == ""; got != ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestMatcher compares the decisions with the plainest reading of the rules.
func TestMatcher(t *testing.T) {
	label := rapid.StringMatching(`[a-c]{1,2}`)
	name := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(label, 1, 4).Draw(t, "labels"), ".")
	})
	addr := rapid.Custom(func(t *rapid.T) netip.Addr {
		if rapid.Bool().Draw(t, "v4") {
			first := rapid.SampledFrom([]byte{1, 10, 93, 100, 127, 169, 172, 192, 224}).Draw(t, "first")
			return netip.AddrFrom4([4]byte{first, rapid.Byte().Draw(t, "b"), rapid.Byte().Draw(t, "c"),
				rapid.Byte().Draw(t, "d")})
		}
		b := [16]byte{0x20, rapid.SampledFrom([]byte{1, 2, 3}).Draw(t, "kind")}
		for i := 2; i < 16; i++ {
			b[i] = rapid.Byte().Draw(t, "byte")
		}
		return netip.AddrFrom16(b)
	})
	rapid.Check(t, func(t *rapid.T) {
		var entries []string
		var names, wild []string
		var ranges []netip.Prefix
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			switch rapid.IntRange(0, 3).Draw(t, "form") {
			case 0:
				n := name.Draw(t, "name")
				names, entries = append(names, n), append(entries, n)
			case 1:
				n := name.Draw(t, "name")
				wild, entries = append(wild, n), append(entries, "*."+n)
			case 2:
				a := addr.Draw(t, "addr")
				ranges, entries = append(ranges, netip.PrefixFrom(a, a.BitLen())), append(entries, a.String())
			case 3:
				a := addr.Draw(t, "addr")
				r, _ := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
				ranges, entries = append(ranges, r), append(entries, r.String())
			}
		}
		p, err := Parse(allow(entries...))
		if err != nil {
			t.Fatal(err)
		}
		n := name.Draw(t, "asked")
		onList := slices.Contains(names, n) ||
			slices.ContainsFunc(wild, func(w string) bool { return strings.HasSuffix(n, "."+w) })
		if got := p.Name(n) == ""; got != onList {
			t.Fatalf("%s under %s: %v", n, p, got)
		}
		a := addr.Draw(t, "dialled")
		if len(ranges) > 0 && rapid.Bool().Draw(t, "near") {
			a = ranges[0].Addr()
		}
		covered := slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
		why := p.Addr(a, n)
		switch {
		case special(a) == nil:
			if got := why == ""; got != (covered || onList) {
				t.Fatalf("%s, known as %s, under %s: %q", a, n, p, why)
			}
		case why == "" && !covered:
			t.Fatalf("%s is not public and not named, but let through under %s", a, p)
		}
		if q, err := Parse(allow(p.entries...)); err != nil || q.String() != p.String() {
			t.Fatalf("%s parsed again: %s, %v", p, q, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"example.org", "*.a.b", "10.0.0.0/8", "::1", "[::1]:80", "http://x/", "bücher.example",
		"0x7f.1", "fe80::1%1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(allow(s))
		if err != nil {
			return
		}
		if len(p.entries) != 1 {
			t.Fatalf("%q: %d entries", s, len(p.entries))
		}
		again, err := Parse(allow(p.entries[0]))
		if err != nil || again.String() != p.String() {
			t.Fatalf("%q becomes %q becomes %q, %v", s, p, again, err)
		}
		for _, c := range notPublic {
			for _, a := range strings.Fields(c.addrs) {
				if a := netip.MustParseAddr(a); p.Addr(a) == "" && len(p.Opens()) == 0 {
					t.Fatalf("%q lets %s through without saying so", s, a)
				}
			}
		}
	})
}

// Opens tells what is not public, but for what others open as well.
func TestOpens(t *testing.T) {
	list := func(s string) Policy {
		p, err := Parse(sandbox.Network{Mode: "allow", Allow: strings.Fields(s)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	all := list("example.org 8.8.8.8 0.0.0.0/0 224.0.0.1 10.1.0.0/16 127.0.0.1 169.254.169.254 fe80::/10")
	for but, want := range map[string]string{
		"":                      "10.1.0.0/16 127.0.0.1 169.254.169.254 fe80::/10",
		"0.0.0.0/0 example.org": "10.1.0.0/16 127.0.0.1 169.254.169.254 fe80::/10",
		"10.1.0.0/17 10.1.2.3":  "10.1.0.0/16 127.0.0.1 169.254.169.254 fe80::/10",
		"10.1.0.0/16":           "127.0.0.1 169.254.169.254 fe80::/10",
		"10.0.0.0/8 127.0.0.1":  "169.254.169.254 fe80::/10",
		// it does not open a metadata service
		"169.254.0.0/16": "10.1.0.0/16 127.0.0.1 169.254.169.254 fe80::/10",
	} {
		if got := strings.Join(all.Opens(list(but)), " "); got != want {
			t.Errorf("but %q: %s", but, got)
		}
	}
}
