package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Replies of SOCKS5 (RFC 1928).
const (
	socksOK         = 0
	socksFailed     = 1
	socksNotAllowed = 2
	socksNoNetwork  = 3
	socksNoHost     = 4
	socksRefused    = 5
	socksTimeout    = 6
	socksNoCommand  = 7
	socksNoAddress  = 8
	socksNoMethod   = 0xff
	socksConnect    = 1
	socksIPv4       = 1
	socksName       = 3
	socksIPv6       = 4
)

// socks serves a client whose first byte has been read. It supports CONNECT without a password
// only: BIND would listen on this host, and for UDP there is the network interface.
func (p *proxy) socks(c *client) {
	defer c.Close()
	var b [262]byte
	if _, err := io.ReadFull(c, b[:1]); err != nil {
		return
	}
	methods := b[1 : 1+int(b[0])]
	if _, err := io.ReadFull(c, methods); err != nil {
		return
	}
	method := byte(socksNoMethod)
	for _, m := range methods {
		if m == 0 {
			method = 0
		}
	}
	if _, err := c.Write([]byte{socksMarker, method}); err != nil || method != 0 {
		return
	}
	if _, err := io.ReadFull(c, b[:4]); err != nil || b[0] != socksMarker {
		return
	}
	cmd, kind := b[1], b[3]
	var host string
	switch kind {
	case socksIPv4, socksIPv6:
		n := 4
		if kind == socksIPv6 {
			n = 16
		}
		if _, err := io.ReadFull(c, b[:n]); err != nil {
			return
		}
		a, _ := netip.AddrFromSlice(b[:n])
		host = a.String()
	case socksName:
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return
		}
		n := int(b[0])
		if _, err := io.ReadFull(c, b[:n]); err != nil {
			return
		}
		host = string(b[:n])
	default:
		socksReply(c, socksNoAddress)
		return
	}
	if _, err := io.ReadFull(c, b[:2]); err != nil {
		return
	}
	port := binary.BigEndian.Uint16(b[:2])
	if cmd != socksConnect {
		p.g.refused.add(host, int(port), "SOCKS with another command than CONNECT")
		socksReply(c, socksNoCommand)
		return
	}
	c.SetDeadline(time.Time{})
	out, err := p.g.dial(p.g.ctx, host, port)
	if err != nil {
		socksReply(c, socksCode(err))
		return
	}
	defer out.Close()
	if socksReply(c, socksOK) == nil {
		relay(c, out)
	}
}

func socksReply(c net.Conn, code byte) error {
	// The address that we are bound to is not revealed.
	_, err := c.Write([]byte{socksMarker, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

func socksCode(err error) byte {
	var ne net.Error
	switch {
	case errors.As(err, new(*Denied)):
		return socksNotAllowed
	case errors.As(err, new(*net.DNSError)), errors.Is(err, syscall.EHOSTUNREACH):
		return socksNoHost
	case errors.Is(err, syscall.ENETUNREACH):
		return socksNoNetwork
	case errors.Is(err, syscall.ECONNREFUSED):
		return socksRefused
	case errors.As(err, &ne) && ne.Timeout():
		return socksTimeout
	}
	return socksFailed
}
