package docker

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/image"
)

// The containers of a session share one network namespace and its loopback interface. If two of
// them need the same port, each has a namespace of its own, and they are joined by a bridge without
// other connections. Its addresses come from a range of ours, because the engine's own pools are
// used up after about thirty networks.

// portsCollide reports whether two containers need the same port, according to their images.
func portsCollide(main image.Info, services map[string]image.Info) bool {
	seen := map[string]bool{}
	for _, p := range main.Config.Ports {
		seen[p] = true
	}
	for _, info := range services {
		mine := map[string]bool{}
		for _, p := range info.Config.Ports {
			if seen[p] && !mine[p] {
				return true
			}
			seen[p], mine[p] = true, true
		}
	}
	return false
}

// bridgeBits is the prefix length of a session's subnet: 16 addresses.
const bridgeBits = 28

// makeBridge creates the session's bridge, if it needs one.
func (b *box) makeBridge(ctx context.Context, cli *client.Client, main image.Info,
	services map[string]image.Info) error {
	if len(services) == 0 || !portsCollide(main, services) {
		return nil
	}
	if b.gated() {
		return b.d.no("a network for a machine with services of which two want the same port")
	}
	if n := len(services) + 1; n > 1<<(32-bridgeBits)-3 {
		return b.d.no("%d services of which two want the same port", n-1)
	}
	all, err := netip.ParsePrefix(b.d.o.Subnets)
	if err != nil || !all.Addr().Is4() || all.Bits() > bridgeBits {
		return fmt.Errorf("subnets for bridges: %q is no range such as 10.213.0.0/16", b.d.o.Subnets)
	}
	all = all.Masked()
	count := 1 << (bridgeBits - all.Bits())
	name := b.id + "-net"
	// Other sessions use the same range, in this process and elsewhere, and only the engine knows
	// which subnets are in use: start with a random one and try the next ones.
	for i, n := rand.IntN(count), 0; n < min(count, 256); i, n = (i+1)%count, n+1 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		subnet := nthSubnet(all, i)
		call, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), callLimit, errNoAnswer)
		b.bridge = name
		b.begin(func(l *resources) { l.network = name })
		_, err := cli.NetworkCreate(call, name, client.NetworkCreateOptions{
			Driver: "bridge", Internal: true, Labels: labels(b.id, b.spec.Owner),
			// The bridge has no address of its own, so that this machine and its services are not
			// reachable.
			Options: map[string]string{"com.docker.network.bridge.inhibit_ipv4": "true"},
			IPAM:    &network.IPAM{Driver: "default", Config: []network.IPAMConfig{{Subnet: subnet}}},
		})
		taken := err != nil && strings.Contains(err.Error(), "overlaps")
		if err != nil {
			err = b.main.engineError(call, "making the session's bridge", err)
		}
		cancel()
		if err == nil {
			b.assignAddresses(subnet)
			return nil
		}
		if !taken {
			return err
		}
	}
	b.bridge = ""
	b.begin(func(l *resources) { l.network = "" })
	return fmt.Errorf("making the session's bridge: all tried subnets of %s are in use: run evalrun gc, or configure "+
		"another range", b.d.o.Subnets)
}

// nthSubnet returns the n-th subnet of a range.
func nthSubnet(all netip.Prefix, n int) netip.Prefix {
	a := all.Addr().As4()
	v := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	v += uint32(n) << (32 - bridgeBits)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), bridgeBits)
}

// assignAddresses assigns an address to each container. The first address is the bridge's own.
func (b *box) assignAddresses(subnet netip.Prefix) {
	a := subnet.Addr().Next().Next()
	b.address[""] = a
	for _, name := range slices.Sorted(maps.Keys(b.services)) {
		a = a.Next()
		b.address[name] = a
	}
}

// mainName is the host name of the main container for its services.
const mainName = "main"

// mainNames returns all host names of the main container.
func (b *box) mainNames() []string {
	names := []string{Hostname}
	taken := slices.Contains(b.spec.Aliases, mainName)
	for name, s := range b.spec.Services {
		taken = taken || name == mainName || slices.Contains(s.Aliases, mainName)
	}
	if !taken {
		names = append(names, mainName)
	}
	return append(names, b.spec.Aliases...)
}

// hosts returns the lines of /etc/hosts for one container: on a shared loopback interface all names
// are 127.0.0.1, and on a bridge each has its own address.
func (b *box) hosts(self string) []string {
	at := func(name string) string {
		if b.bridge == "" || name == self {
			return "127.0.0.1"
		}
		return b.address[name].String()
	}
	var out []string
	for _, n := range b.mainNames() {
		out = append(out, n+":"+at(""))
	}
	for _, name := range slices.Sorted(maps.Keys(b.services)) {
		for _, n := range append([]string{name}, b.spec.Services[name].Aliases...) {
			out = append(out, n+":"+at(name))
		}
	}
	return out
}

// networking returns a container's address on the bridge.
func (p *plan) networking(b *box, container string) *network.NetworkingConfig {
	if p.bridge == "" {
		return nil
	}
	for name, m := range b.allMachines() {
		if m.name == container {
			return &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
				p.bridge: {IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: b.address[name]}},
			}}
		}
	}
	return nil
}

// allMachines returns the containers by name; "" is main.
func (b *box) allMachines() map[string]*machine {
	m := maps.Clone(b.services)
	m[""] = b.main
	return m
}
