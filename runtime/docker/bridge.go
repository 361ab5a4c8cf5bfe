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

// Machines of a session meet on the loopback of one network namespace. Only where two of them want
// the same port, each has a namespace of its own, and a bridge that leads nowhere joins them. Its
// addresses come from a range of ours: the engine's own pools end after some thirty networks, and
// other people need those.

// collide reports whether two machines want the same port, as far as their images say.
func collide(main image.Info, services map[string]image.Info) bool {
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

// bridgeBits is the size of a session's subnet: 16 addresses.
const bridgeBits = 28

// makeBridge makes the session's bridge, if it needs one.
func (b *box) makeBridge(ctx context.Context, cli *client.Client, main image.Info,
	services map[string]image.Info) error {
	if len(services) == 0 || !collide(main, services) {
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
	// Others draw from the same range, in this process and elsewhere, and the engine knows best
	// what is taken: begin somewhere, and go on.
	for i, n := rand.IntN(count), 0; n < min(count, 256); i, n = (i+1)%count, n+1 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		subnet := nth(all, i)
		call, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), callLimit, errSilent)
		b.bridge = name
		b.begin(func(l *leftover) { l.network = name })
		_, err := cli.NetworkCreate(call, name, client.NetworkCreateOptions{
			Driver: "bridge", Internal: true, Labels: labels(b.id, b.spec.Owner),
			// The bridge itself has no address: else this machine, all its services with it, would
			// be a neighbour.
			Options: map[string]string{"com.docker.network.bridge.inhibit_ipv4": "true"},
			IPAM:    &network.IPAM{Driver: "default", Config: []network.IPAMConfig{{Subnet: subnet}}},
		})
		taken := err != nil && strings.Contains(err.Error(), "overlaps")
		if err != nil {
			err = b.main.engineError(call, "making the session's bridge", err)
		}
		cancel()
		if err == nil {
			b.number(subnet)
			return nil
		}
		if !taken {
			return err
		}
	}
	b.bridge = ""
	b.begin(func(l *leftover) { l.network = "" })
	return fmt.Errorf("making the session's bridge: all tried subnets of %s are in use: run evalrun gc, or configure "+
		"another range", b.d.o.Subnets)
}

// nth is the n-th subnet of a range.
func nth(all netip.Prefix, n int) netip.Prefix {
	a := all.Addr().As4()
	v := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	v += uint32(n) << (32 - bridgeBits)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}), bridgeBits)
}

// number gives each machine its address: the first one is the bridge's own.
func (b *box) number(subnet netip.Prefix) {
	a := subnet.Addr().Next().Next()
	b.address[""] = a
	for _, name := range slices.Sorted(maps.Keys(b.services)) {
		a = a.Next()
		b.address[name] = a
	}
}

// mainName is how services know the main machine.
const mainName = "main"

// mainNames are all names of the main machine.
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

// hosts are the lines of /etc/hosts, as one machine needs them: on a shared loopback all names are
// 127.0.0.1, and on a bridge its own are.
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

// networking says which address a container has on the bridge.
func (p *plan) networking(b *box, container string) *network.NetworkingConfig {
	if p.bridge == "" {
		return nil
	}
	for name, m := range b.all() {
		if m.name == container {
			return &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
				p.bridge: {IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: b.address[name]}},
			}}
		}
	}
	return nil
}

// all are the machines by their names; "" is main.
func (b *box) all() map[string]*machine {
	m := maps.Clone(b.services)
	m[""] = b.main
	return m
}
