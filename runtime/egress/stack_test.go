package egress

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/evalrun/evalrun/internal/execproto"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// guest is a machine in memory: a network stack in the place of its kernel, and the link to its
// gate.
type guest struct {
	t      testing.TB
	s      *stack.Stack
	ep     *channel.Endpoint
	ctx    context.Context
	cancel context.CancelFunc
}

func newGuest(t testing.TB) *guest {
	m := &guest{t: t, ep: channel.New(4096, execproto.TunMTU, "")}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.s = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	if e := m.s.CreateNIC(1, m.ep); e != nil {
		t.Fatal(e)
	}
	for _, a := range []string{execproto.TunAddr4, execproto.TunAddr6} {
		full, proto := m.full(netip.AddrPortFrom(netip.MustParseAddr(a), 0))
		if e := m.s.AddProtocolAddress(1,
			tcpip.ProtocolAddress{Protocol: proto, AddressWithPrefix: full.Addr.WithPrefix()},
			stack.AddressProperties{}); e != nil {
			t.Fatal(e)
		}
	}
	m.s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1},
		{Destination: header.IPv6EmptySubnet, NIC: 1}})
	t.Cleanup(func() {
		m.Close()
		m.s.Close()
		m.s.Wait()
	})
	return m
}

func (m *guest) full(a netip.AddrPort) (tcpip.FullAddress, tcpip.NetworkProtocolNumber) {
	proto := ipv4.ProtocolNumber
	if a.Addr().Is6() {
		proto = ipv6.ProtocolNumber
	}
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}, proto
}

// The guest as a Link.

func (m *guest) ReadPacket() ([]byte, error) {
	p := m.ep.ReadContext(m.ctx)
	if p == nil {
		return nil, io.EOF
	}
	defer p.DecRef()
	b := p.ToView()
	defer b.Release()
	return bytes.Clone(b.AsSlice()), nil
}

func (m *guest) Put(parts ...[]byte) error {
	if m.ctx.Err() != nil {
		return io.ErrClosedPipe
	}
	b := bytes.Join(parts, nil)
	proto := ipv4.ProtocolNumber
	if b[0]>>4 == 6 {
		proto = ipv6.ProtocolNumber
	}
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(b)})
	m.ep.InjectInbound(proto, p)
	p.DecRef()
	return nil
}

func (m *guest) Flush() error { return nil }
func (m *guest) Close() error { m.cancel(); return nil }

func (m *guest) tcp(to string) (*gonet.TCPConn, error) {
	full, proto := m.full(netip.MustParseAddrPort(to))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return gonet.DialContextTCP(ctx, m.s, full, proto)
}

func (m *guest) udp(to string) net.Conn {
	full, proto := m.full(netip.MustParseAddrPort(to))
	c, err := gonet.DialUDP(m.s, nil, &full, proto)
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

// ask asks for a name's addresses, and returns the answer's code and them.
func (m *guest) ask(name string, kind dnsmessage.Type, overTCP bool) string {
	m.t.Helper()
	n, err := dnsmessage.NewName(name)
	if err != nil {
		m.t.Fatal(err)
	}
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}}}
	b, err := q.Pack()
	if err != nil {
		m.t.Fatal(err)
	}
	answer := make([]byte, 1500)
	server := execproto.TunServer4 + ":53"
	if overTCP {
		c, err := m.tcp("[" + execproto.TunServer6 + "]:53")
		if err != nil {
			m.t.Fatal(err)
		}
		defer c.Close()
		c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			m.t.Fatal(err)
		}
		answer = answer[:binary.BigEndian.Uint16(size[:])]
		if _, err := io.ReadFull(c, answer); err != nil {
			m.t.Fatal(err)
		}
	} else {
		c := m.udp(server)
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		c.Write(b)
		n, err := c.Read(answer)
		if err != nil {
			m.t.Fatal(err)
		}
		answer = answer[:n]
	}
	var r dnsmessage.Message
	if err := r.Unpack(answer); err != nil || r.ID != 77 || !r.Response || len(r.Questions) != 1 ||
		r.Questions[0].Name.String() != name {
		m.t.Fatalf("%+v, %v", r, err)
	}
	out := []string{strings.TrimPrefix(r.RCode.String(), "RCode")}
	for _, a := range r.Answers {
		switch x := a.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(x.A).String())
		case *dnsmessage.AAAAResource:
			out = append(out, netip.AddrFrom16(x.AAAA).String())
		}
	}
	return strings.Join(out, " ")
}

// transparently is a machine with an interface whose gate knows some hosts.
func transparently(t testing.TB, n sandbox.Network, o Options) (*Gate, *guest, *internet) {
	t.Helper()
	web := newInternet()
	web.names["good.example"] = []string{"93.184.216.34", "2606:4700::34"}
	web.names["evil.example"] = []string{"93.184.216.66"}
	web.names["inner.example"] = []string{"10.0.0.1"}
	for _, a := range []string{"93.184.216.34:443", "[2606:4700::34]:443", "93.184.216.66:443", "10.0.0.1:443",
		"udp 93.184.216.34:443", "udp 93.184.216.66:443"} {
		web.hosts[a] = echo
	}
	o.Resolver, o.Dialer = web, web
	g := newGate(mustParse(t, n), o)
	m := newGuest(t)
	g.serveLink(m)
	t.Cleanup(func() { g.Close() })
	return g, m, web
}

func TestNames(t *testing.T) {
	g, m, _ := transparently(t, allow("good.example", "inner.example", "nowhere.example"), Options{})
	for _, tt := range []struct {
		name string
		kind dnsmessage.Type
		want string
	}{
		{"good.example.", dnsmessage.TypeA, "Success 93.184.216.34"},
		{"gOOd.exAmple.", dnsmessage.TypeA, "Success 93.184.216.34"},
		{"good.example.", dnsmessage.TypeAAAA, "Success 2606:4700::34"},
		{"good.example.", dnsmessage.TypeMX, "Success"},
		{"_http._tcp.good.example.", dnsmessage.TypeSRV, "Success"},
		{"evil.example.", dnsmessage.TypeA, "NameError"},
		{"_http._tcp.evil.example.", dnsmessage.TypeSRV, "NameError"},
		{"secret.evil.example.", dnsmessage.TypeTXT, "NameError"},
		{"inner.example.", dnsmessage.TypeA, "Success"},
		{"nowhere.example.", dnsmessage.TypeA, "NameError"},
		{"34.216.184.93.in-addr.arpa.", dnsmessage.TypePTR, "NameError"},
	} {
		for _, overTCP := range []bool{false, true} {
			if got := m.ask(tt.name, tt.kind, overTCP); got != tt.want {
				t.Errorf("%s %s, TCP %v: %s", tt.name, tt.kind, overTCP, got)
			}
		}
	}
	if got := fmt.Sprint(g.Refused()); got != "[{evil.example 0 not on the list 4} {secret.evil.example 0 not on the "+
		"list 2} {inner.example 0 resolves to a private address 2}]" {
		t.Error(got)
	}
}

func TestConnections(t *testing.T) {
	g, m, web := transparently(t, allow("good.example", "inner.example", "8.8.8.0/24"), Options{})
	refused := func(to string) {
		t.Helper()
		start := time.Now()
		c, err := m.tcp(to)
		if err == nil {
			c.Close()
			t.Errorf("%s is reached", to)
		} else if !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", to, err)
		}
		if d := time.Since(start); d > 15*time.Second { // less than it would take without an answer
			t.Errorf("%s: said after %v", to, d)
		}
	}
	refused("93.184.216.34:443") // not resolved yet: nothing says that it is good's
	m.ask("good.example.", dnsmessage.TypeA, false)
	m.ask("evil.example.", dnsmessage.TypeA, false)
	m.ask("inner.example.", dnsmessage.TypeA, false)
	c, err := m.tcp("93.184.216.34:443")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("ping"))
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "ping" {
		t.Errorf("%q, %v", b, err)
	}
	for _, to := range []string{
		"93.184.216.66:443", "10.0.0.1:443", "169.254.169.254:80", "[fe80::1]:443", "[fd00:ec2::254]:80", "0.0.0.1:443",
		"[64:ff9b::7f00:1]:443",
		execproto.TunServer4 + ":443", execproto.TunServer4 + ":61080", "[" + execproto.TunServer6 + "]:22",
		"8.8.8.8:53", // allowed, and nobody is there
	} {
		refused(to)
	}
	if got := web.dials(); fmt.Sprint(got) != "[93.184.216.34:443 8.8.8.8:53]" {
		t.Errorf("connected to %s", got)
	}
	if err := g.Rewire(t.Context(), sandbox.Network{}); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(b); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after none: %v", err)
	}
	refused("93.184.216.34:443")
	if got := m.ask("good.example.", dnsmessage.TypeA, false); got != "NameError" {
		t.Error(got)
	}
	want := []string{
		"93.184.216.34 443 not on the list 2", // before it was resolved, and at the end
		"evil.example 0 not on the list 1", "inner.example 0 resolves to a private address 1",
		"93.184.216.66 443 not on the list 1", "10.0.0.1 443 a private address 1",
		"169.254.169.254 80 a metadata service 1",
		"fe80::1 443 a link-local address 1", "fd00:ec2::254 80 a metadata service 1",
		"0.0.0.1 443 an unspecified address 1",
		"64:ff9b::7f00:1 443 a loopback address 1", "10.255.255.1 443 a private address 1",
		"10.255.255.1 61080 a private address 1",
		"fd65:7661:6c72::1 22 a private address 1", "good.example 0 no network 1",
	}
	var got []string
	for _, r := range g.Refused() {
		got = append(got, strings.Trim(fmt.Sprint(r), "{}"))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestDatagrams(t *testing.T) {
	g, m, _ := transparently(t, sandbox.Network{Mode: "public"}, Options{})
	say := func(to string, answered bool) error {
		c := m.udp(to)
		defer c.Close()
		c.Write([]byte("datagram"))
		wait := 20 * time.Second
		if !answered { // the guest's stack does not tell a closed port; a kernel does
			host, _, _ := net.SplitHostPort(to)
			refused := func() bool {
				return slices.ContainsFunc(g.Refused(), func(r sandbox.Refusal) bool { return r.Host == host })
			}
			for end := time.Now().Add(wait); !refused() && time.Now().Before(end); time.Sleep(time.Millisecond) {
			}
			wait = 100 * time.Millisecond
		}
		c.SetDeadline(time.Now().Add(wait))
		_, err := c.Read(make([]byte, 100))
		return err
	}
	if err := say("93.184.216.34:443", true); err != nil {
		t.Errorf("public: %v", err)
	}
	if err := say("10.0.0.1:53", false); err == nil {
		t.Error("private: answered")
	}
	g.Rewire(t.Context(), allow("good.example", "93.184.216.66"))
	m.ask("good.example.", dnsmessage.TypeA, false)
	if err := say("93.184.216.34:443", false); err == nil {
		t.Error("a list, by name: answered")
	}
	if err := say("93.184.216.66:443", true); err != nil {
		t.Errorf("a list, by address: %v", err)
	}
	if got := fmt.Sprint(g.Refused()); !strings.Contains(got,
		"{10.0.0.1 53 a private address 1} {93.184.216.34 443 "+WhyUDP) {
		t.Error(got)
	}
}

// TestStreams moves much both ways at once, with proper ends.
func TestStreams(t *testing.T) {
	_, m, web := transparently(t, sandbox.Network{Mode: "public"}, Options{})
	const size = 4 << 20
	web.hosts["93.184.216.34:80"] = func(c net.Conn) {
		defer c.Close()
		io.CopyN(io.Discard, c, 1000) // slowly at first
		io.Copy(c, c)
	}
	data := make([]byte, size)
	rand.Read(data)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c, err := m.tcp("93.184.216.34:80")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			go c.Write(append(make([]byte, 1000), data...))
			got := make([]byte, size)
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
}

func TestManyConnections(t *testing.T) {
	g, m, _ := transparently(t, sandbox.Network{Mode: "public"}, Options{Conns: 50})
	var open []net.Conn
	for range 60 {
		c, err := m.tcp("93.184.216.34:443")
		if err == nil {
			open = append(open, c)
		}
	}
	if len(open) != 50 {
		t.Errorf("%d of 60", len(open))
	}
	for _, c := range open {
		c.Close()
	}
	if got := fmt.Sprint(g.Refused()); got != "[{93.184.216.34 443 too many connections 10}]" {
		t.Error(got)
	}
}

// TestUnread: who takes nothing of what he asked for holds his connections, and no more memory than
// theirs.
func TestUnread(t *testing.T) {
	g, m, web := transparently(t, sandbox.Network{Mode: "public"}, Options{Conns: 4})
	web.hosts["93.184.216.34:80"] = func(c net.Conn) {
		c.Write(make([]byte, 10<<20))
		c.Close()
	}
	for range 4 {
		c, err := m.tcp("93.184.216.34:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if c, err := m.tcp("93.184.216.34:443"); err == nil {
		c.Close()
		t.Error("a fifth")
	}
	if err := g.Rewire(t.Context(), sandbox.Network{}); err != nil { // which cuts them at once
		t.Fatal(err)
	}
	g.Rewire(t.Context(), sandbox.Network{Mode: "public"})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := m.tcp("93.184.216.34:443")
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal("they are still there")
		}
	}
}

// TestGarbage: whatever comes over the link, the gate lives.
func TestGarbage(t *testing.T) {
	_, m, _ := transparently(t, sandbox.Network{Mode: "public"}, Options{})
	send := func(b []byte) {
		p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(b)})
		var l stack.PacketBufferList
		l.PushBack(p)
		m.ep.WritePackets(l)
		l.Reset()
	}
	for n := range 200 {
		b := make([]byte, n)
		rand.Read(b)
		for _, version := range []byte{0x45, 0x60, 0x4f, 0x00} {
			if n > 0 {
				b[0] = version
			}
			for _, proto := range []byte{6, 17} {
				if n > 9 {
					b[6], b[9] = proto, proto
				}
				send(b)
			}
		}
	}
	for i := 0; ; i++ { // the link may have lost some of it, and this
		c, err := m.tcp("93.184.216.34:443")
		if err == nil {
			c.Close()
			return
		}
		if i == 10 {
			t.Fatal(err)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	q := dnsmessage.Message{Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("good.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, _ := q.Pack()
	f.Add(b)
	f.Add(b[:12])
	web := newInternet()
	web.names["good.example"] = []string{"93.184.216.34"}
	g := newGate(mustParse(f, allow("good.example")), Options{Resolver: web, Dialer: web})
	f.Cleanup(func() { g.Close() })
	f.Fuzz(func(t *testing.T, b []byte) {
		r := g.answer(context.Background(), b)
		if len(r) > 512 {
			t.Fatalf("%d bytes", len(r))
		}
		var m dnsmessage.Message
		if r != nil && m.Unpack(r) != nil {
			t.Fatal("not a message")
		}
	})
}
