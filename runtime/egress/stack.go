package egress

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/evalrun/evalrun/internal/execproto"
)

const (
	nic        = 1
	window     = 256 << 10 // per connection and direction: many packets, as the link has no latency
	maxWindow  = 1 << 20
	maxPending = 128              // connections being made
	drainLimit = 30 * time.Second // for the last bytes, after both sides have closed
	udpIdle    = 60 * time.Second // without a datagram
)

// serveLink handles a sandbox's packets until the link ends. The stack is created for the first
// packet that needs it, since most sandboxes with a network use the proxy, or nothing.
func (g *Gate) serveLink(l Link) {
	t := &transparent{g: g, end: &endpoint{link: l}}
	g.ends = append(g.ends, func() { l.Close() })
	g.wg.Go(t.run)
}

// transparent is the network interface of a gate.
type transparent struct {
	g   *Gate
	end *endpoint
	s   *stack.Stack
}

func (t *transparent) run() {
	defer t.end.link.Close()
	for {
		p, err := t.end.link.ReadPacket()
		if err != nil {
			break
		}
		proto, ok := accepted(p)
		if !ok {
			continue
		}
		if t.s == nil {
			if t.s, err = t.make(); err != nil {
				break
			}
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(p)})
		t.end.deliver(proto, pkt)
		pkt.DecRef()
	}
	if t.s != nil {
		t.end.link.Close() // unblock writers
		t.s.Close()
		t.s.Wait()
	}
}

// accepted reports which packets the stack gets: TCP and UDP. Others (echo requests, router
// solicitations, group joins) are dropped: an answer would say that a host exists.
func accepted(p []byte) (tcpip.NetworkProtocolNumber, bool) {
	const tcpProto, udpProto = 6, 17
	switch {
	case len(p) >= header.IPv4MinimumSize && p[0]>>4 == 4:
		return ipv4.ProtocolNumber, (p[9] == tcpProto || p[9] == udpProto) && p[16] != 127 // no kernel sends that
	case len(p) >= header.IPv6MinimumSize && p[0]>>4 == 6:
		return ipv6.ProtocolNumber, (p[6] == tcpProto || p[6] == udpProto) && [16]byte(p[24:40]) != [16]byte{15: 1}
	}
	return 0, false
}

// silenceStack turns off the stack's log messages about strange packets, with which a sandbox could
// write to our standard error.
var silenceStack = sync.OnceFunc(func() { log.SetTarget(discardLog{}) })

type discardLog struct{}

func (discardLog) Emit(int, log.Level, time.Time, string, ...any) {}

func (t *transparent) make() (*stack.Stack, error) {
	silenceStack()
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	sack := tcpip.TCPSACKEnabled(true)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	// The link keeps the order, so there is no need to wait for late packets.
	timeWait, linger := tcpip.TCPTimeWaitTimeoutOption(100*time.Millisecond),
		tcpip.TCPLingerTimeoutOption(5*time.Second)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &timeWait)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &linger)
	moderate := tcpip.TCPModerateReceiveBufferOption(false)
	s.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate)
	s.SetTransportProtocolOption(tcp.ProtocolNumber,
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: window, Max: maxWindow})
	s.SetTransportProtocolOption(tcp.ProtocolNumber,
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: window, Max: maxWindow})
	f := tcp.NewForwarder(s, window, maxPending, t.connect)
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, f.HandlePacket)
	s.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(s, t.datagram).HandlePacket)
	fail := func(e tcpip.Error) (*stack.Stack, error) {
		s.Close()
		s.Wait()
		return nil, &net.OpError{Op: "network", Err: errText(e.String())}
	}
	if e := s.CreateNIC(nic, t.end); e != nil {
		return fail(e)
	}
	// Accept packets for any address, and answer from that address.
	if e := s.SetPromiscuousMode(nic, true); e != nil {
		return fail(e)
	}
	if e := s.SetSpoofing(nic, true); e != nil {
		return fail(e)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic},
		{Destination: header.IPv6EmptySubnet, NIC: nic}})
	for _, a := range []string{execproto.TunServer4, execproto.TunServer6} {
		if e := t.serveNames(s, netip.MustParseAddr(a)); e != nil {
			return fail(e)
		}
	}
	return s, nil
}

type errText string

func (e errText) Error() string { return string(e) }

// connect answers the first packet of a connection. If the connection is refused or fails, it
// answers with a reset, so that programs learn it at once.
func (t *transparent) connect(r *tcp.ForwarderRequest) {
	serve := func() {
		to, ok := addrPort(r.ID())
		if !ok {
			r.Complete(true)
			return
		}
		out, err := t.g.connect(t.g.ctx, "tcp", to, to.Addr().String(), t.g.names.of(to.Addr()))
		if err != nil {
			r.Complete(true)
			return
		}
		defer out.Close()
		var q waiter.Queue
		ep, e := r.CreateEndpoint(&q)
		r.Complete(e != nil)
		if e != nil {
			return
		}
		in := gonet.NewTCPConn(&q, ep)
		defer in.Close()
		// Not with the gate's lock: a sandbox that takes no packets can block whoever uses its
		// connections.
		out.whenCut(func() { t.g.wg.Go(ep.Abort) })
		exchange(in, out)
		t.drain(ep)
	}
	done := make(chan struct{})
	if !t.g.spawn(func() { <-done }) {
		r.Complete(true)
		return
	}
	defer close(done)
	serve()
}

// drain waits until the sandbox has received what was sent to it, for a limited time. Until then
// the connection counts.
func (t *transparent) drain(ep tcpip.Endpoint) {
	end := time.Now().Add(drainLimit)
	for pause := time.Millisecond; time.Now().Before(end); pause = min(2*pause, 100*time.Millisecond) {
		switch tcp.EndpointState(ep.State()) {
		case tcp.StateEstablished, tcp.StateCloseWait, tcp.StateFinWait1, tcp.StateLastAck, tcp.StateClosing:
		default:
			return
		}
		select {
		case <-time.After(pause):
		case <-t.g.ctx.Done():
			end = time.Time{}
		}
	}
	ep.Abort()
}

// datagram starts a UDP flow, or reports that the port is closed. The reader of packets calls it,
// so it must not block.
func (t *transparent) datagram(r *udp.ForwarderRequest) bool {
	to, ok := addrPort(r.ID())
	if !ok {
		return false
	}
	// connecting UDP sends nothing
	out, err := t.g.connect(t.g.ctx, "udp", to, to.Addr().String(), t.g.names.of(to.Addr()))
	if err != nil {
		return false
	}
	var q waiter.Queue
	ep, e := r.CreateEndpoint(&q)
	if e != nil {
		out.Close()
		return true
	}
	in := gonet.NewUDPConn(&q, ep)
	idle := udpIdle
	if to.Port() == dnsPort { // a query and its answer
		idle = dnsIdle
	}
	if !t.g.spawn(func() { relayDatagrams(in, out, idle) }) {
		in.Close()
		out.Close()
	}
	return true
}

// relayDatagrams copies in both directions until both sides have been idle for a while.
func relayDatagrams(in, out net.Conn, idle time.Duration) {
	defer in.Close()
	defer out.Close()
	later := func() {
		end := time.Now().Add(idle)
		in.SetReadDeadline(end)
		out.SetReadDeadline(end)
	}
	half := func(dst, src net.Conn) {
		b := buffers.Get().(*[]byte)
		defer buffers.Put(b)
		for {
			n, err := src.Read(*b)
			if err != nil {
				break
			}
			if n == len(*b) { // truncated: no packet of ours is as long
				continue
			}
			later()
			if _, err := dst.Write((*b)[:n]); err != nil {
				break
			}
		}
		in.Close()
		out.Close()
	}
	later()
	done := make(chan struct{})
	go func() {
		defer close(done)
		half(out, in)
	}()
	half(in, out)
	<-done
}

// addrPort returns the destination of a packet from inside.
func addrPort(id stack.TransportEndpointID) (netip.AddrPort, bool) {
	a, ok := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	return netip.AddrPortFrom(a.Unmap(), id.LocalPort), ok && id.LocalPort != 0
}

// endpoint is the stack's side of a link.
type endpoint struct {
	link Link

	mu   sync.RWMutex
	disp stack.NetworkDispatcher

	wmu sync.Mutex
}

func (e *endpoint) deliver(proto tcpip.NetworkProtocolNumber, pkt *stack.PacketBuffer) {
	e.mu.RLock()
	d := e.disp
	e.mu.RUnlock()
	if d != nil {
		d.DeliverNetworkPacket(proto, pkt)
	}
}

// WritePackets blocks while the sandbox does not take packets, which is the back-pressure for
// incoming data.
func (e *endpoint) WritePackets(l stack.PacketBufferList) (int, tcpip.Error) {
	e.wmu.Lock()
	defer e.wmu.Unlock()
	for i, p := range l.AsSlice() {
		if e.link.Put(p.AsSlices()...) != nil {
			return i, &tcpip.ErrClosedForSend{}
		}
	}
	if e.link.Flush() != nil {
		return 0, &tcpip.ErrClosedForSend{}
	}
	return l.Len(), nil
}

func (e *endpoint) Attach(d stack.NetworkDispatcher) {
	e.mu.Lock()
	e.disp = d
	e.mu.Unlock()
}

func (e *endpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.disp != nil
}

func (e *endpoint) MTU() uint32                             { return execproto.TunMTU }
func (e *endpoint) SetMTU(uint32)                           {}
func (e *endpoint) MaxHeaderLength() uint16                 { return 0 }
func (e *endpoint) LinkAddress() tcpip.LinkAddress          { return "" }
func (e *endpoint) SetLinkAddress(tcpip.LinkAddress)        {}
func (e *endpoint) Wait()                                   {}
func (e *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (e *endpoint) AddHeader(*stack.PacketBuffer)           {}
func (e *endpoint) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (e *endpoint) Close()                                  {}
func (e *endpoint) SetOnCloseAction(func())                 {}

// Capabilities: the packets come from a kernel on this host, so checksums need no check.
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload
}
