package format

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// policy makes a network policy of a mode and its hosts. nil: neither is written.
func policy(mode string, hosts []string, listed bool) (*sandbox.Network, error) {
	var errs []error
	var clean []string
	for _, h := range hosts {
		c, err := NormalizeHost(h)
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

var label = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// NormalizeHost checks an entry of allowed_hosts and brings it into its usual form: a name,
// *.suffix, an address, or a CIDR range.
func NormalizeHost(entry string) (string, error) {
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
