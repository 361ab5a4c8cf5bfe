package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	maxQueries   = 32 // answered concurrently; more are dropped, and clients repeat them
	maxDNSConns  = 16 // over TCP
	maxAnswers   = 8  // so that every answer fits in the smallest datagram
	answerLife   = 30 // TTL of answers
	dnsPort      = 53
	dnsIdle      = 10 * time.Second
	maxDNSPacket = 4 << 10
)

// serveNames answers DNS on one of our addresses, over UDP and TCP.
func (t *transparent) serveNames(s *stack.Stack, a netip.Addr) tcpip.Error {
	proto := ipv4.ProtocolNumber
	if a.Is6() {
		proto = ipv6.ProtocolNumber
	}
	full := tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(a.AsSlice()), Port: dnsPort}
	pa := tcpip.ProtocolAddress{Protocol: proto, AddressWithPrefix: full.Addr.WithPrefix()}
	if e := s.AddProtocolAddress(nic, pa, stack.AddressProperties{}); e != nil {
		return e
	}
	u, err := gonet.DialUDP(s, &full, nil, proto)
	if err != nil {
		return &tcpip.ErrBadLocalAddress{}
	}
	l, err := gonet.ListenTCP(s, full, proto)
	if err != nil {
		u.Close()
		return &tcpip.ErrBadLocalAddress{}
	}
	ok := t.g.spawn(func() { <-t.g.ctx.Done(); u.Close(); l.Close() }) &&
		t.g.spawn(func() { t.g.answerDatagrams(u) }) &&
		t.g.spawn(func() { t.g.answerStreams(l) })
	if !ok {
		u.Close()
		l.Close()
	}
	return nil
}

func (g *Gate) answerDatagrams(c net.PacketConn) {
	slots := make(chan struct{}, maxQueries)
	b := make([]byte, maxDNSPacket)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		q := append([]byte(nil), b[:n]...)
		select {
		case slots <- struct{}{}:
		default:
			continue
		}
		if !g.spawn(func() {
			defer func() { <-slots }()
			if r := g.answer(g.ctx, q); r != nil {
				c.WriteTo(r, from)
			}
		}) {
			return
		}
	}
}

func (g *Gate) answerStreams(l net.Listener) {
	slots := make(chan struct{}, maxDNSConns)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		default:
			c.Close()
			continue
		}
		if !g.spawn(func() {
			defer func() { <-slots }()
			g.answerStream(c)
		}) {
			c.Close()
			return
		}
	}
}

func (g *Gate) answerStream(c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(g.ctx, func() { c.Close() })()
	for {
		c.SetDeadline(time.Now().Add(dnsIdle))
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		q := make([]byte, binary.BigEndian.Uint16(size[:]))
		if len(q) > maxDNSPacket {
			return
		}
		if _, err := io.ReadFull(c, q); err != nil {
			return
		}
		r := g.answer(g.ctx, q)
		if r == nil {
			return
		}
		c.SetDeadline(time.Now().Add(dnsIdle))
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(r))), r...)); err != nil {
			return
		}
	}
}

// answer answers one message, or returns nil if it should not be answered. A name that the policy
// forbids does not exist: programs take that as definite, while many repeat a refused query for a
// long time.
func (g *Gate) answer(ctx context.Context, query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	reply := dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired,
		RecursionAvailable: true}
	say := func(code dnsmessage.RCode, q *dnsmessage.Question, addrs []netip.Addr) []byte {
		reply.RCode = code
		b := dnsmessage.NewBuilder(make([]byte, 0, 512), reply)
		b.EnableCompression()
		if q != nil {
			if b.StartQuestions() != nil || b.Question(*q) != nil || b.StartAnswers() != nil {
				return nil
			}
			rh := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: answerLife}
			for _, a := range addrs {
				if a.Is4() {
					err = b.AResource(rh, dnsmessage.AResource{A: a.As4()})
				} else {
					err = b.AAAAResource(rh, dnsmessage.AAAAResource{AAAA: a.As16()})
				}
				if err != nil {
					return nil
				}
			}
		}
		m, err := b.Finish()
		if err != nil {
			return nil
		}
		return m
	}
	if h.OpCode != 0 {
		return say(dnsmessage.RCodeNotImplemented, nil, nil)
	}
	q, err := p.Question()
	if err != nil {
		return say(dnsmessage.RCodeFormatError, nil, nil)
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return say(dnsmessage.RCodeFormatError, nil, nil)
	}
	if q.Class != dnsmessage.ClassINET {
		return say(dnsmessage.RCodeNotImplemented, &q, nil)
	}
	name, err := cleanName(strings.ToLower(q.Name.String()))
	if err != nil {
		return say(dnsmessage.RCodeNameError, &q, nil)
	}
	if strings.HasSuffix(name, ".in-addr.arpa") || strings.HasSuffix(name, ".ip6.arpa") {
		return say(dnsmessage.RCodeNameError, &q, nil) // tools look up addresses for logging; answer without a lookup
	}
	byAddress := q.Type == dnsmessage.TypeA || q.Type == dnsmessage.TypeAAAA
	about := name
	for !byAddress && strings.HasPrefix(about, "_") { // _http._tcp.example.org belongs to example.org
		_, about, _ = strings.Cut(about, ".")
	}
	if why := g.Policy().Name(about); why != "" {
		g.refused.add(about, 0, why)
		return say(dnsmessage.RCodeNameError, &q, nil)
	}
	if !byAddress { // the name exists, without such records
		return say(dnsmessage.RCodeSuccess, &q, nil)
	}
	addrs, err := g.lookup(ctx, name)
	if err != nil {
		var de *net.DNSError
		if errors.As(err, &de) && de.IsNotFound {
			return say(dnsmessage.RCodeNameError, &q, nil)
		}
		return say(dnsmessage.RCodeServerFailure, &q, nil)
	}
	good := g.reachable(name, addrs, 0)
	g.names.add(name, good)
	var out []netip.Addr
	for _, a := range good {
		if a.Is4() == (q.Type == dnsmessage.TypeA) && len(out) < maxAnswers {
			out = append(out, a)
		}
	}
	return say(dnsmessage.RCodeSuccess, &q, out)
}

// reachable returns the addresses of a name that the policy allows. If there are none, it records
// that.
func (g *Gate) reachable(name string, addrs []netip.Addr, port int) []netip.Addr {
	p := g.Policy()
	var good []netip.Addr
	why := ""
	for _, a := range addrs {
		f := flow{to: netip.AddrPortFrom(a, 0), names: []string{name}}
		if w := f.check(p); w != "" {
			why = w
			continue
		}
		good = append(good, a)
	}
	if len(good) == 0 && why != "" {
		g.refused.add(name, port, "resolves to "+why)
	}
	return good
}
