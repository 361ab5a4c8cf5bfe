// Package egresstest is a small internet for tests: hosts of ours in a network namespace, on
// addresses that are public by their class, and a resolver that knows their names. It needs root,
// and reaches nothing outside of this machine.
package egresstest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// World is the hosts of one test. It is a resolver, too: see [egress.Options].
type World struct {
	t      testing.TB
	ns     string
	n      int
	prefix string

	mu    sync.Mutex
	names map[string][]netip.Addr
	asked map[string]int
}

var worlds atomic.Int32

// New makes an empty world, which ends with the test.
func New(t testing.TB) *World {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("hosts in a network namespace need root")
	}
	w := &World{t: t, names: map[string][]netip.Addr{}, asked: map[string]int{}}
	for try := 0; ; try++ {
		w.n = 1 + (os.Getpid()*5+int(worlds.Add(1)))%250
		w.ns = fmt.Sprintf("evalrun-test-%d", w.n)
		out, err := exec.Command("ip", "netns", "add", w.ns).CombinedOutput()
		if err == nil {
			break
		}
		if try == 50 {
			t.Fatalf("making a network namespace: %v: %s", err, out)
		}
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", w.ns).Run() })
	w.prefix = fmt.Sprintf("93.184.%d.", w.n)
	out, in := fmt.Sprintf("evh%d", w.n), fmt.Sprintf("evn%d", w.n)
	w.ip("link", "add", out, "type", "veth", "peer", "name", in, "netns", w.ns)
	t.Cleanup(func() { exec.Command("ip", "link", "del", out).Run() })
	w.ip("addr", "add", w.prefix+"1/24", "dev", out)
	w.ip("-6", "addr", "add", w.v6(1)+"/64", "dev", out, "nodad")
	w.ip("link", "set", out, "up")
	w.ip("-n", w.ns, "link", "set", "lo", "up")
	w.ip("-n", w.ns, "link", "set", in, "up")
	for i := 2; i < 10; i++ {
		w.ip("-n", w.ns, "addr", "add", fmt.Sprint(w.prefix, i, "/24"), "dev", in)
		w.ip("-n", w.ns, "-6", "addr", "add", w.v6(i)+"/64", "dev", in, "nodad")
	}
	return w
}

func (w *World) ip(args ...string) {
	w.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil &&
		!(args[0] == "-6" || len(args) > 2 && args[2] == "-6") {
		w.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (w *World) v6(i int) string { return fmt.Sprintf("2a0e:b107:%x::%x", w.n, i) }

// Addr is the address of host i, from 2 to 9; host 1 is this machine. IPv6 is there when this
// kernel has it.
func (w *World) Addr(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprint(w.prefix, i)) }

// Addr6 is the same host's other address.
func (w *World) Addr6(i int) netip.Addr { return netip.MustParseAddr(w.v6(i)) }

// Name lets a name stand for addresses, in the place of those it had.
func (w *World) Name(name string, addrs ...netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = addrs
}

// Asked returns how often a name was asked for.
func (w *World) Asked(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[name]
}

// LookupNetIP resolves the names of this world, and no others.
func (w *World) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	host = strings.TrimSuffix(host, ".")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked[host]++
	addrs, ok := w.names[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return append([]netip.Addr(nil), addrs...), nil
}

// Listen opens a TCP port of a host.
func (w *World) Listen(a netip.Addr, port int) net.Listener {
	w.t.Helper()
	var l net.Listener
	w.inside(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(a, uint16(port)).String())
		return err
	})
	w.t.Cleanup(func() { l.Close() })
	return l
}

// ListenUDP opens a UDP port of a host.
func (w *World) ListenUDP(a netip.Addr, port int) net.PacketConn {
	w.t.Helper()
	var c net.PacketConn
	w.inside(func() (err error) {
		c, err = net.ListenPacket("udp", netip.AddrPortFrom(a, uint16(port)).String())
		return err
	})
	w.t.Cleanup(func() { c.Close() })
	return c
}

// inside runs f on a thread in the namespace. Sockets stay where they were made.
func (w *World) inside(f func() error) {
	w.t.Helper()
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		w.t.Fatal(err)
	}
	defer home.Close()
	there, err := os.Open("/run/netns/" + w.ns)
	if err != nil {
		w.t.Fatal(err)
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		w.t.Fatalf("entering the namespace: %v", err)
	}
	ferr := f()
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		w.t.Fatalf("leaving the namespace: %v", err) // with the thread locked, which ends with this goroutine
	}
	runtime.UnlockOSThread()
	if ferr != nil {
		w.t.Fatal(ferr)
	}
}
