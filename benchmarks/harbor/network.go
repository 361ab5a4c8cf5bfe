package harbor

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// policy makes a network policy of a mode and its hosts. nil: neither is written.
func policy(mode string, hosts []string, listed bool) (*sandbox.Network, error) {
	var errs []error
	var clean []string
	for _, h := range hosts {
		c, err := host(h)
		if err != nil {
			errs = append(errs, fmt.Errorf("allowed_hosts: %w", err))
		} else if !slices.Contains(clean, c) {
			clean = append(clean, c)
		}
	}
	switch {
	case mode == "" && !listed:
		return nil, nil
	case mode == "allowlist" || mode == "":
		if mode == "" {
			errs = append(errs, errors.New(`allowed_hosts without network_mode = "allowlist"; add it`))
		}
	case listed:
		errs = append(errs, fmt.Errorf(`allowed_hosts with network_mode = %q; it goes with "allowlist" only`, mode))
	case mode == "public":
		return &sandbox.Network{Mode: "public"}, errors.Join(errs...)
	case mode == "no-network":
		return &sandbox.Network{Mode: "none"}, errors.Join(errs...)
	default:
		errs = append(errs, fmt.Errorf("network_mode %q; want public, no-network or allowlist", mode))
	}
	return allow(clean), errors.Join(errs...)
}

// allow is the policy of a list; an empty one denies everything.
func allow(hosts []string) *sandbox.Network {
	if len(hosts) == 0 {
		return &sandbox.Network{Mode: "none"}
	}
	return &sandbox.Network{Mode: "allow", Allow: hosts}
}

// widen is a policy with more hosts: none becomes a list, public stays what it is.
func widen(n sandbox.Network, hosts []string) sandbox.Network {
	if len(hosts) == 0 || n.Mode == "public" {
		return n
	}
	all := slices.Clone(n.Allow)
	for _, h := range hosts {
		if !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return *allow(all)
}

// shut says which of the task's own lists would open what is not public, this host's services or
// its network, to its machines. Only the run's configuration may open that. "": none would.
func (b *Benchmark) shut(t *Task, o benchmarks.Options) string {
	list := func(hosts ...string) egress.Policy {
		p, _ := egress.Parse(sandbox.Network{Mode: "allow", Allow: hosts}) // what is wrong with it is told elsewhere
		return p
	}
	all, agent := list(b.o.AllowHosts...), list(b.o.AgentAllowHosts...)
	var wrong, open []string
	check := func(n *sandbox.Network, but ...egress.Policy) {
		if n == nil {
			return
		}
		p, err := egress.Parse(*n)
		if err != nil {
			wrong = append(wrong, err.Error())
		}
		open = append(open, p.Opens(append(but, all)...)...)
	}
	ours := o.Sandbox.Network.Mode != "" // then it holds in all phases of the agent's machine
	if !ours {
		check(&t.Environment.Network)
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		if !ours {
			check(s.Network, agent)
		}
		if s.Verifier.Separate {
			check(&s.Verifier.Environment.Network, list(o.Sandbox.Network.Allow...))
		}
		if !ours || s.Verifier.Separate {
			check(s.Verifier.Network, list(o.Sandbox.Network.Allow...))
		}
	}
	slices.Sort(open)
	if open = slices.Compact(open); len(open) > 0 {
		wrong = append(wrong, fmt.Sprintf("its allow-list opens %s, not public: if that is meant, add allow_hosts: "+
			"[%[1]s] to harbor's options",
			strings.Join(open, ", ")))
	}
	return strings.Join(wrong, "; ")
}

var label = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// host checks an entry of allowed_hosts and brings it into its usual form: a name, *.suffix, an
// address, or a CIDR range.
func host(entry string) (string, error) {
	h := strings.TrimRight(strings.ToLower(strings.TrimSpace(entry)), ".")
	bad := func(why string) (string, error) { return "", fmt.Errorf("%q %s", entry, why) }
	if h == "" {
		return bad("is empty")
	}
	if strings.Contains(h, "://") {
		return bad("is a URL; write the host's name alone")
	}
	if p, err := netip.ParsePrefix(h); err == nil {
		if p != p.Masked() {
			return bad("has host bits set; is " + p.Masked().String() + " meant?")
		}
		return p.String(), nil
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(h, "["), "]")); err == nil {
		if a.Zone() != "" {
			return bad("has a zone")
		}
		return a.String(), nil
	}
	switch {
	case strings.Contains(h, "/"):
		return bad("has a path, or is no CIDR range; write the host's name alone")
	case strings.Contains(h, ":"):
		return bad("has a port; write the host's name alone")
	}
	name := strings.TrimPrefix(h, "*.")
	if _, err := netip.ParseAddr(name); err == nil {
		return bad("is a wildcard of an address; write a CIDR range")
	}
	if strings.Contains(name, "*") {
		return bad("has a wildcard that is not a leading *.")
	}
	if len(name) > 253 {
		return bad("is too long for a host's name")
	}
	for _, l := range strings.Split(name, ".") {
		if !label.MatchString(l) {
			return bad("is no host's name, address, *.suffix or CIDR range")
		}
	}
	return h, nil
}
