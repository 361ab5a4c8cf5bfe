package egress

import "net/netip"

// A class is a set of addresses that are not the public internet's.
type class struct {
	why    string
	ranges []netip.Prefix
	never  bool // no entry of a list allows it
}

func prefixes(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

var (
	unspecified = &class{why: "an unspecified address", ranges: prefixes("0.0.0.0/8", "::/128"), never: true}
	reserved    = &class{why: "a reserved address",
		ranges: prefixes("192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24",
			"203.0.113.0/24", "192.88.99.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20")}
)

// classes are the classes of addresses. The first one that contains an address gives the reason, so
// the smaller ones come first.
var classes = []*class{
	{why: "a metadata service", ranges: prefixes("169.254.169.254/32", "169.254.169.253/32", "169.254.169.123/32",
		"169.254.170.2/32", "169.254.170.23/32",
		"169.254.0.23/32", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::/32",
		"fd20:ce::254/128", "fd00:42::42/128")},
	unspecified,
	{why: "a loopback address", ranges: prefixes("127.0.0.0/8", "::1/128")},
	{why: "a private address", ranges: prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7",
		"fec0::/10")},
	{why: "a link-local address", ranges: prefixes("169.254.0.0/16", "fe80::/10")},
	{why: "a carrier's private address", ranges: prefixes("100.64.0.0/10")},
	{why: "a multicast address", ranges: prefixes("224.0.0.0/4", "ff00::/8"), never: true},
	reserved,
}

// embeddedIPv4 are the IPv6 ranges whose addresses contain an IPv4 address, and its position in the
// 16 bytes. It is checked too, because packets may end there. (Other such ranges are outside of
// global, or reserved.)
var embeddedIPv4 = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},     // 6to4
}

// global is the range of public IPv6 addresses, without NAT64.
var global = netip.MustParsePrefix("2000::/3")

// special returns the class of an address that is not public, or nil.
func special(a netip.Addr) *class {
	a = a.WithZone("").Unmap()
	if !a.IsValid() {
		return unspecified
	}
	for _, c := range classes {
		for _, r := range c.ranges {
			if r.Contains(a) {
				return c
			}
		}
	}
	if a.Is4() {
		return nil
	}
	b := a.As16()
	for _, f := range embeddedIPv4 {
		if f.prefix.Contains(a) {
			return special(netip.AddrFrom4([4]byte(b[f.at : f.at+4])))
		}
	}
	if !global.Contains(a) {
		return reserved
	}
	return nil
}

// holds reports whether a range of a list allows this class: if it is within one of the class's
// ranges, or is a single address. So 0.0.0.0/0 means the internet only, and the link-local range
// does not allow the metadata service in it.
func (c *class) holds(r netip.Prefix) bool {
	if c.never {
		return false
	}
	if r.IsSingleIP() {
		return true
	}
	for _, o := range c.ranges {
		if o.Bits() <= r.Bits() && o.Contains(r.Addr()) {
			return true
		}
	}
	return false
}
