package docker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// clash is a machine with two services of which both want port 80.
func clash(t testing.TB, d *Driver) sandbox.Spec {
	spec := helped(t, d, "EXPOSE 80")
	side := spec
	side.Entrypoint = []string{helperPath, "echo", "here", ",", "listen", "80"}
	side.Health = &sandbox.Health{Test: []string{"CMD", helperPath, "dial", "80", "x"}, Interval: 50 * time.Millisecond,
		Retries: 200}
	two := side
	two.Aliases = []string{"second"}
	spec.Services = map[string]sandbox.Spec{"one": side, "two": two}
	spec.Aliases = []string{"chief"}
	return spec
}

// Services that want one port get machines of their own network, and find each other by name;
// nobody finds a way out.
func TestBridge(t *testing.T) {
	d := requireWith(t, Options{Subnets: "10.213.240.0/24"})
	sb := open(t, d, clash(t, d))
	hosts := first(run(t, sb, "cat", "/etc/hosts"))
	seen := map[string]string{}
	for line := range strings.Lines(hosts) {
		f := strings.Fields(line)
		for _, name := range f[min(1, len(f)):] {
			seen[name] = f[0]
		}
	}
	if !strings.HasPrefix(seen["one"], "10.213.240.") || seen["one"] == seen["two"] || seen["two"] != seen["second"] {
		t.Errorf("/etc/hosts: %q", hosts)
	}
	if seen["chief"] != "127.0.0.1" || seen["main"] != "127.0.0.1" {
		t.Errorf("main's own names: %q", hosts)
	}
	if got := first(run(t, sb, "interfaces")); strings.Count(got, "\n") != 1 {
		t.Errorf("interfaces: %q", got)
	}
	if _, x := run(t, sb, "dial", "80", "x"); x.Code == 0 {
		t.Error("main has a service's port on its loopback")
	}
	s, _ := sb.(sandbox.Group).Service("one")
	if got := first(run(t, s, "dial", "80", "self")); got != "SELF\n" {
		t.Errorf("a service's own port: %q", got)
	}
	// This machine is no neighbour, by none of its addresses.
	cli := api(t, d)
	n, err := cli.NetworkInspect(context.Background(), sb.(*box).bridge, client.NetworkInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	subnet := n.Network.IPAM.Config[0].Subnet
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if strings.HasPrefix(a.String(), "10.213.240.") {
			t.Errorf("this machine has the address %v in the session's subnet %s", a, subnet)
		}
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
	if got := mine(t, d); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// From a bridge, this machine's own services are out of reach, by whatever address.
func TestBridgeIsApart(t *testing.T) {
	d := requireWith(t, Options{Subnets: "10.213.242.0/24"})
	if _, err := api(t, d).ImageInspect(context.Background(), benchImage); err != nil {
		t.Skip(err)
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	spec := clash(t, d)
	spec.Image.Ref = benchImage
	sb := open(t, d, spec)
	own := sb.(*box).address[""].String()
	targets := []string{own[:strings.LastIndexByte(own, '.')] + ".1"}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() != nil && !ip.IsLoopback() {
			targets = append(targets, ip.String())
		}
	}
	for _, target := range targets {
		x, err := sb.Exec(context.Background(), sandbox.Command{Timeout: time.Minute,
			Args: []string{"python3", "-c",
				fmt.Sprintf("import socket; socket.create_connection((%q, %d), 3)", target, port)}})
		if err != nil || x.Code == 0 {
			t.Errorf("%s: %+v, %v", target, x, err)
		}
	}
}

// With no subnet left there is an error that says so, and nothing stays.
func TestBridgesUsedUp(t *testing.T) {
	d := requireWith(t, Options{Subnets: "10.213.241.16/28"})
	cli := api(t, d)
	n, err := cli.NetworkCreate(context.Background(), "evalrun-test-"+random(4),
		client.NetworkCreateOptions{Driver: "bridge", Internal: true,
			IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: netip.MustParsePrefix("10.213.241.16/28")}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer cli.NetworkRemove(context.Background(), n.ID, client.NetworkRemoveOptions{})
	_, err = d.Create(context.Background(), clash(t, d))
	if err == nil || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "10.213.241.16/28") {
		t.Errorf("error %v", err)
	}
	if got := mine(t, d); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

func TestSubnets(t *testing.T) {
	d := requireWith(t, Options{Subnets: "nonsense"})
	if _, err := d.Create(context.Background(), clash(t, d)); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("error %v", err)
	}
}
