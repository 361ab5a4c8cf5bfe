package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/idna"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Policy is a valid network policy in a form for fast checks. The zero value is no network. It is
// immutable.
type Policy struct {
	mode     string // "", "public", "allow"
	names    map[string]bool
	suffixes []string // with their leading dot
	prefixes []netip.Prefix
	entries  []string // for display: normalized, in the order of the list, without duplicates
}

// Parse checks a policy. Its error lists all invalid entries and what to write instead.
func Parse(n sandbox.Network) (Policy, error) {
	switch n.Mode {
	case "", "none", "public":
		if len(n.Allow) > 0 {
			return Policy{}, fmt.Errorf("network %q with a list of hosts: a list goes with the mode allow; leave one "+
				"of them out", n.Mode)
		}
		if n.Mode == "public" {
			return Policy{mode: "public"}, nil
		}
		return Policy{}, nil
	case "allow":
	default:
		return Policy{}, fmt.Errorf("network %q is unknown; write none, public, or allow with a list of hosts", n.Mode)
	}
	p := Policy{mode: "allow", names: map[string]bool{}}
	var errs []error
	for _, entry := range n.Allow {
		if err := p.add(entry); err != nil {
			errs = append(errs, err)
		}
	}
	return p, errors.Join(errs...)
}

func (p *Policy) add(entry string) error {
	s := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(entry)), ".")
	bad := func(format string, args ...any) error {
		return fmt.Errorf("network: %q "+format, append([]any{entry}, args...)...)
	}
	shown := s
	switch {
	case s == "":
		return bad("is empty; write a host (example.org), a wildcard (*.example.org), an address or a range " +
			"(192.0.2.0/24)")
	case strings.Contains(s, "://"):
		return bad("is a URL; write only its host%s", suggest(hostOf(s)))
	case strings.HasPrefix(s, "["):
		return bad("is in brackets; write the address without them%s", suggest(strings.TrimSuffix(s[1:], "]")))
	}
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Zone() != "" {
			return bad("has a zone; write the address without it, %s", a.WithZone(""))
		}
		a = a.Unmap()
		p.prefixes, shown = append(p.prefixes, netip.PrefixFrom(a, a.BitLen())), a.String()
		return p.show(shown)
	}
	if host, bits, ok := strings.Cut(s, "/"); ok {
		r, err := netip.ParsePrefix(s)
		if err != nil {
			if _, aerr := netip.ParseAddr(host); aerr == nil {
				return bad("is no range: %q is no length of a prefix; write one like 192.0.2.0/24", bits)
			}
			return bad("has a path; write only the host%s", suggest(host))
		}
		if r.Addr().Is4In6() {
			return bad("is a range of mapped addresses; write the IPv4 range")
		}
		if r != r.Masked() {
			return bad("has bits set beyond its prefix; write %s, or the address alone", r.Masked())
		}
		p.prefixes = append(p.prefixes, r)
		return p.show(r.String())
	}
	if host, port, ok := strings.Cut(s, ":"); ok {
		if strings.Contains(port, ":") {
			return bad("is no address and no host")
		}
		return bad("has a port; all ports of a host are allowed together, so write only the host%s", suggest(host))
	}
	base, wild := strings.CutPrefix(s, "*.")
	if strings.Contains(base, "*") {
		return bad("has a wildcard elsewhere than as its first label; write *.example.org")
	}
	name, err := cleanName(base)
	if err != nil {
		return bad("is no host: %v; write a host (example.org), a wildcard (*.example.org), an address or a range "+
			"(192.0.2.0/24)", err)
	}
	if looksNumeric(name) {
		if wild {
			return bad("is a wildcard of an address; write a range, like 192.0.2.0/24")
		}
		return bad("is no address in the usual form; write it like 192.0.2.1")
	}
	if wild {
		if !slices.Contains(p.suffixes, "."+name) {
			p.suffixes = append(p.suffixes, "."+name)
		}
		return p.show("*." + name)
	}
	p.names[name] = true
	return p.show(name)
}

func (p *Policy) show(entry string) error {
	if !slices.Contains(p.entries, entry) {
		p.entries = append(p.entries, entry)
	}
	return nil
}

func suggest(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf(", %q", s)
}

// hostOf returns the host of something like a URL.
func hostOf(s string) string {
	_, s, _ = strings.Cut(s, "://")
	s, _, _ = strings.Cut(s, "/")
	if _, after, ok := strings.Cut(s, "@"); ok {
		s = after
	}
	if !strings.HasPrefix(s, "[") {
		s, _, _ = strings.Cut(s, ":")
	}
	return strings.Trim(s, "[]")
}

// cleanName normalizes a host name for comparison: lower case, ASCII, without a dot at the end.
// Underscores are allowed, since names of services have them.
func cleanName(s string) (string, error) {
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return "", errors.New("it is empty")
	}
	if len(s) > 4*253 { // in any script; and IDNA is slow for long names
		return "", errors.New("it is too long")
	}
	ascii := true
	for i := range len(s) {
		ascii = ascii && s[i] < 0x80
	}
	if !ascii {
		a, err := idna.Lookup.ToASCII(s)
		if err != nil {
			return "", err
		}
		s = a
	}
	s = strings.ToLower(s)
	if len(s) > 253 {
		return "", errors.New("it is longer than 253 characters")
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" {
			return "", errors.New("it has an empty label")
		}
		if len(label) > 63 {
			return "", errors.New("a label is longer than 63 characters")
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return "", errors.New("a label begins or ends with a hyphen")
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", fmt.Errorf("it has the character %q", rune(c))
			}
		}
	}
	return s, nil
}

// looksNumeric reports whether old resolvers would take a name for an address: 2130706433, 0x7f.1,
// 0177.0.0.1. The last label decides, as no top-level domain is a number.
func looksNumeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// None reports whether the policy allows nothing.
func (p Policy) None() bool { return p.mode == "" || p.mode == "allow" && len(p.entries) == 0 }

// String returns the effective policy for people: "none", "public", or "allow example.org,
// *.example.net".
func (p Policy) String() string {
	switch {
	case p.mode == "public":
		return "public"
	case p.mode == "":
		return "none"
	case len(p.entries) == 0:
		return "none (an empty list)"
	}
	return "allow " + strings.Join(p.entries, ", ")
}

// Opens returns the entries that allow what is otherwise refused: private addresses, this host,
// metadata services. It leaves out entries of which one of the policies in but allows the same.
func (p Policy) Opens(but ...Policy) []string {
	var out []string
	for _, r := range p.prefixes {
		c := special(r.Addr())
		if c != nil && c.holds(r) && !slices.ContainsFunc(but, func(o Policy) bool { return o.opens(r, c) }) {
			s := r.String()
			if r.IsSingleIP() {
				s = r.Addr().String()
			}
			out = append(out, s)
		}
	}
	return out
}

// opens reports whether an entry of the list allows all of a range of this class.
func (p Policy) opens(r netip.Prefix, c *class) bool {
	return slices.ContainsFunc(p.prefixes,
		func(o netip.Prefix) bool { return o.Bits() <= r.Bits() && o.Contains(r.Addr()) && c.holds(o) })
}

// Text returns the effective policy for plans and summaries, also for an invalid one.
func Text(n sandbox.Network) string {
	p, err := Parse(n)
	if err != nil {
		return n.Mode + " (" + err.Error() + ")"
	}
	s := p.String()
	if o := p.Opens(); len(o) > 0 {
		s += " (not public: " + strings.Join(o, ", ") + ")"
	}
	return s
}

// Reasons of refusals, as they are recorded.
const (
	WhyNone    = "no network"
	WhyUnlist  = "not on the list"
	WhyBadName = "not a host's name"
	WhyMany    = "too many connections"
	WhyUDP     = "UDP to a host that is not on the list by its address"
	WhyHost    = "an address of this host"
)

// Name returns why a name may not be resolved, or "". Its addresses are checked separately.
func (p Policy) Name(name string) string {
	switch p.mode {
	case "public":
		return ""
	case "":
		return WhyNone
	}
	if p.names[name] {
		return ""
	}
	for _, s := range p.suffixes {
		if len(name) > len(s) && strings.HasSuffix(name, s) {
			return ""
		}
	}
	return WhyUnlist
}

// Addr returns why an address may not be dialed, or "". names are the names that it is known by:
// with a list, one of them must be on it, or an entry must cover the address itself. An address
// that is not public must be covered by an entry that means it: a range as wide as everything is
// not enough.
func (p Policy) Addr(a netip.Addr, names ...string) string {
	if p.mode == "" {
		return WhyNone
	}
	a = a.WithZone("")
	if c := special(a); c != nil {
		if p.mode == "allow" {
			for _, r := range p.prefixes {
				if r.Contains(a.Unmap()) && c.holds(r) {
					return ""
				}
			}
		}
		return c.why
	}
	if p.mode == "public" || p.covers(a) {
		return ""
	}
	for _, n := range names {
		if p.Name(n) == "" {
			return ""
		}
	}
	return WhyUnlist
}

// covers reports whether an entry of the list contains the address.
func (p Policy) covers(a netip.Addr) bool {
	a = a.Unmap()
	for _, r := range p.prefixes {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

// exactly reports whether the list has this single address.
func (p Policy) exactly(a netip.Addr) bool {
	a = a.Unmap()
	return slices.ContainsFunc(p.prefixes, func(r netip.Prefix) bool { return r.IsSingleIP() && r.Addr() == a })
}
