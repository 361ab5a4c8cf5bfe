package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runtime/egress/egresstest"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// world makes hosts and lets all machines of this test see them.
func world(t testing.TB) *egresstest.World {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_LOCAL") == "" {
		t.Skip("needs local sandboxes and hosts in a network namespace: set EVALRUN_TEST_LOCAL=1")
	}
	if os.Geteuid() != 0 {
		t.Skip("hosts in a network namespace need root")
	}
	w := egresstest.New(t)
	old := gateOptions
	gateOptions.Resolver = w
	t.Cleanup(func() { gateOptions = old })
	return w
}

func serve(t testing.TB, l net.Listener, text string) {
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%s %s %s %d\n", text, r.Host, r.URL.Path, b)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}

func wiredBox(t testing.TB, n sandbox.Network) sandbox.Sandbox {
	t.Helper()
	d := New()
	t.Cleanup(func() { d.Close() })
	sb, err := d.Create(t.Context(), sandbox.Spec{Owner: sandbox.Self(), Network: n, Rewire: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	return sb
}

func script(t testing.TB, sb sandbox.Sandbox, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	if _, err := sb.Exec(ctx, sandbox.Command{Args: []string{"/bin/sh", "-c", text}, Stdout: &out,
		Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

func TestNetwork(t *testing.T) {
	w := world(t)
	serve(t, w.Listen(w.Addr(2), 80), "two")
	serve(t, w.Listen(w.Addr6(2), 80), "two over IPv6")
	serve(t, w.Listen(w.Addr(3), 80), "three")
	w.Name("two.example", w.Addr(2))
	w.Name("six.example", w.Addr6(2))
	w.Name("three.example", w.Addr(3))
	sb := wiredBox(t, sandbox.Network{Mode: "allow", Allow: []string{"two.example", "six.example"}})
	if ok, why := sb.(*box).Transparent(); !ok {
		t.Fatal(why)
	}
	check := func(cmd, want string) {
		t.Helper()
		if got := script(t, sb, cmd+" 2>&1"); got != want {
			t.Errorf("%s: %s", cmd, got)
		}
	}
	check("curl -sS http://two.example/a", "two two.example /a 0")
	check("curl -sS -p http://two.example/c", "two two.example /c 0")
	check("curl -sS --socks5-hostname 127.0.0.1:61080 http://two.example/d", "two two.example /d 0")
	check("curl -sS --noproxy '*' http://two.example/b", "two two.example /b 0")
	check("curl -sS --noproxy '*' http://six.example/b", "two over IPv6 six.example /b 0")
	check("head -c 3000000 /dev/zero | curl -sS --noproxy '*' -T - http://two.example/up",
		"two two.example /up 3000000")
	for _, to := range []string{"127.0.0.1:61080", w.Addr(2).String() + ":80"} { // a client that ends its side first
		host, port, _ := strings.Cut(to, ":")
		check(fmt.Sprintf(`python3 -c '
import socket
s = socket.create_connection(("%s", %s))
s.sendall(b"GET http://two.example/e HTTP/1.0\r\nHost: two.example\r\n\r\n")
s.shutdown(socket.SHUT_WR)
r = b""
while True:
    b = s.recv(9999)
    if not b: break
    r += b
print(r.decode().splitlines()[-1])'`, host, port), "two two.example /e 0")
	}
	check("curl -sS --noproxy '*' http://three.example/", "curl: (6) Could not resolve host: three.example")
	check("curl -s -o /dev/null -w '%{http_code}' http://three.example/", "403")
	if err := sb.(sandbox.Rewirer).Rewire(t.Context(), sandbox.Network{Mode: "public"}); err != nil {
		t.Fatal(err)
	}
	check("curl -sS --noproxy '*' http://three.example/", "three three.example / 0")
	if err := sb.(sandbox.Rewirer).Rewire(t.Context(), sandbox.Network{}); err != nil {
		t.Fatal(err)
	}
	check("curl -sS --noproxy '*' http://two.example/", "curl: (6) Could not resolve host: two.example")
	want := "[{three.example 0 not on the list 2} {three.example 80 not on the list 1} {two.example 0 no network 2}]"
	if got := fmt.Sprint(sb.(sandbox.RefusalLister).Refused()); got != want {
		t.Error(got)
	}
}

// TestNoNetwork: a machine without one is as it was, and cannot get one.
func TestNoNetwork(t *testing.T) {
	world(t)
	d := New()
	defer d.Close()
	sb, err := d.Create(t.Context(), sandbox.Spec{Owner: sandbox.Self()})
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Close()
	if got := script(t, sb, "ls /sys/class/net 2>/dev/null; tail -n +3 /proc/net/dev | grep -v lo:; env | grep -i "+
		"proxy; cat /etc/resolv.conf"); got != "# no network" {
		t.Error(got)
	}
	if err := sb.(sandbox.Rewirer).Rewire(t.Context(), sandbox.Network{Mode: "public"}); !errors.As(err,
		new(*sandbox.Unsupported)) {
		t.Error(err)
	}
	for _, n := range []sandbox.Network{{Mode: "allow", Allow: []string{"http://x"}}, {Mode: "some"}} {
		if sb, err := d.Create(t.Context(), sandbox.Spec{Owner: sandbox.Self(), Network: n}); err == nil {
			sb.Close()
			t.Errorf("%+v is taken", n)
		}
	}
}

// TestNetworkAttacks: a machine with a list tries to reach what is not on it. Each script prints
// BROKEN if it gets there.
func TestNetworkAttacks(t *testing.T) {
	w := world(t)
	serve(t, w.Listen(w.Addr(2), 80), "good")
	serve(t, w.Listen(w.Addr(3), 80), "BROKEN")
	serve(t, w.Listen(w.Addr(3), 443), "BROKEN")
	serve(t, w.Listen(w.Addr(3), 53), "BROKEN")
	w.Name("good.example", w.Addr(2))
	w.Name("evil.example", w.Addr(3))
	w.Name("rebound.good.example", netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1"), w.Addr(1))
	// A service of this host, on all of its addresses, and an abstract socket.
	host, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, host, "BROKEN")
	port := host.Addr().(*net.TCPAddr).Port
	abstract, err := net.Listen("unix", fmt.Sprintf("@evalrun-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	sb := wiredBox(t, sandbox.Network{Mode: "allow", Allow: []string{"good.example", "*.good.example"}})
	if got := script(t, sb, "curl -sS --noproxy '*' http://good.example/"); got != "good good.example / 0" {
		t.Fatal(got)
	}
	direct := func(hosts string, port int) string {
		return fmt.Sprintf("for h in %s; do curl -s --noproxy '*' -m 10 http://$h:%d/; curl -s -m 10 http://$h:%d/; "+
			"curl -s -p -m 10 http://$h:%d/; curl -s -m 10 --socks5 127.0.0.1:61080 http://$h:%d/; done", hosts, port,
			port, port, port)
	}
	evil := w.Addr(3).As4()
	decimal := binary.BigEndian.Uint32(evil[:])
	spellings := fmt.Sprintf("%v %d 0x%x 0%o.0%o.0%o.0%o %d.%d [::ffff:%v] [64:ff9b::%x:%x]", w.Addr(3), decimal,
		decimal, evil[0], evil[1], evil[2], evil[3],
		evil[0], decimal&0xffffff, w.Addr(3), decimal>>16, decimal&0xffff)
	for _, tt := range []struct{ name, script, refused string }{
		{"an address and its other spellings", direct(spellings, 80), w.Addr(3).String() + " 80 not on the list"},
		{"a name", direct("evil.example", 80), "evil.example 80 not on the list"},
		{"the Host of a good name", fmt.Sprintf("curl -s -m 10 --noproxy '*' -H 'Host: good.example' http://%v/; "+
			"curl -s -m 10 -H 'Host: good.example' http://%v/; curl -s -m 10 --noproxy '*' --resolve "+
			"good.example:80:%v http://good.example/; curl -s -m 10 --connect-to good.example:80:%v:80 -p "+
			"http://good.example/", w.Addr(3), w.Addr(3), w.Addr(3), w.Addr(3)), w.Addr(3).String() + " 80"},
		{"rebinding", direct("rebound.good.example", port), fmt.Sprintf("rebound.good.example %d resolves to", port)},
		{"this host", direct(fmt.Sprintf("127.0.0.1 [::1] %v [%v] 0.0.0.0 10.255.255.1 10.255.255.2 sandbox localhost",
			w.Addr(1), w.Addr6(1)), port), fmt.Sprintf("%v %d not on the list", w.Addr(1), port)},
		{"other name servers, by UDP and TCP", fmt.Sprintf(`python3 - <<'P'
import socket
q = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04evil\x07example\x00\x00\x01\x00\x01"
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    for server in ("%v", "8.8.8.8"):
        s = socket.socket(socket.AF_INET, kind); s.settimeout(5)
        try:
            s.connect((server, 53))
            s.send(q if kind == socket.SOCK_DGRAM else b"\x00\x1d" + q)
            print("BROKEN", s.recv(100))
        except ConnectionRefusedError: pass
        except Exception as e: print("BROKEN, it hangs", e)
P`, w.Addr(3)), "8.8.8.8 53"},
		{"our name server, by TCP, for a name not on the list", `python3 - <<'P'
import socket
q = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04evil\x07example\x00\x00\x01\x00\x01"
s = socket.create_connection(("10.255.255.1", 53), 5)
s.sendall(b"\x00\x1e" + q)
r = s.recv(100)
if r[5] & 15 != 3: print("BROKEN", r)
P`, "evil.example 0 not on the list"},
		{"raw sockets and packets", `python3 - <<'P'
import socket
for args in ((socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP), (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW), (socket.AF_INET6, socket.SOCK_RAW, 58), (socket.AF_PACKET, socket.SOCK_RAW, 0x300)):
    try: socket.socket(*args); print("BROKEN", args)
    except PermissionError: pass
P`, ""},
		{"the interface", "ip link set tun0 down 2>/dev/null && echo BROKEN; ip addr add 93.184.1.1/8 dev tun0 " +
			"2>/dev/null && echo BROKEN; ip route del default 2>/dev/null && echo BROKEN; ls /dev/net 2>/dev/null; " +
			"exec 3<>/dev/net/tun && echo BROKEN", ""},
		{"sockets of this host", fmt.Sprintf(
			`ls /var/run/docker.sock /run/docker.sock 2>/dev/null && echo BROKEN; python3 -c '
import socket
for a in ("\0evalrun-test-%d", "/var/run/docker.sock"):
    try: socket.socket(socket.AF_UNIX).connect(a); print("BROKEN", a)
    except OSError: pass
'`, os.Getpid()), ""},
		{"metadata services", direct("169.254.169.254 [fd00:ec2::254] 2852039166 100.100.100.200", 80),
			"169.254.169.254 80 a metadata service"},
		{"broadcasts", `python3 - <<'P'
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.settimeout(0.3)
for a in ("255.255.255.255", "224.0.0.251", "10.255.255.255"):
    try:
        s.sendto(b"x", (a, 5353)); print("BROKEN", s.recv(10))
    except OSError: pass
P`, ""},
		{"more connections than may be", `python3 - <<'P'
import socket
a = []
for i in range(1500):
    try:
        s = socket.socket(); s.settimeout(3); s.connect(("127.0.0.1", 61080)); a.append(s)
    except OSError: break
P
true`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := script(t, sb, tt.script); strings.Contains(got, "BROKEN") {
				t.Error(got)
			}
			all := fmt.Sprint(sb.(*box).Refused())
			if !strings.Contains(all, tt.refused) {
				t.Errorf("nothing about %q on record: %s", tt.refused, all)
			}
		})
	}
	if got := script(t, sb, "curl -sS --noproxy '*' http://good.example/; curl -sS "+
		"http://good.example/"); got != "good good.example / 0\ngood good.example / 0" {
		t.Errorf("after all that: %s", got)
	}
	// Nor is this host a part of the public network, whatever its address.
	if err := sb.(*box).Rewire(t.Context(), sandbox.Network{Mode: "public"}); err != nil {
		t.Fatal(err)
	}
	if got := script(t, sb, direct(fmt.Sprintf("%v [%v] evil.example", w.Addr(1), w.Addr6(1)), port)); strings.Contains(
		got, "BROKEN") {
		t.Error(got)
	}
	if got := script(t, sb, "curl -sS --noproxy '*' http://"+w.Addr(3).String()); !strings.Contains(got, "BROKEN") {
		t.Errorf("public, but a public address is not reached: %s", got)
	}
	got := sb.(*box).Refused()
	if all := fmt.Sprint(got); !strings.Contains(all, "an address of this host") {
		t.Error(all)
	}
	for _, r := range got {
		t.Logf("%+v", r)
	}
}

// TestNetworkEnds: an executor that is killed takes its gate along, and what was refused is still
// known.
func TestNetworkEnds(t *testing.T) {
	world(t)
	sb := wiredBox(t, sandbox.Network{Mode: "allow"})
	script(t, sb, "curl -s http://evil.example/; curl -s --noproxy '*' http://evil.example/")
	b := sb.(*box)
	b.p.kill()
	<-b.c.Done()
	b.gate.Close()
	if got := fmt.Sprint(b.Refused()); got != "[{evil.example 80 not on the list 1} {evil.example 0 not on "+
		"the list 2}]" {
		t.Error(got)
	}
	if err := sb.Close(); err != nil {
		t.Error(err)
	}
}
