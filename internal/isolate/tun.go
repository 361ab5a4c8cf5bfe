package isolate

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/execproto"
)

// OpenTun creates a network interface with an address and default routes in the network namespace
// of the calling thread, which must have CAP_NET_ADMIN over it. Packets sent to the interface are
// read from the file. Closing the file removes the interface.
func OpenTun() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, failed("opening /dev/net/tun", err)
	}
	if err := setUp(fd); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tun"), nil
}

// ifreq is the kernel's struct ifreq, as used here.
type ifreq struct {
	name  [16]byte
	value int32 // flags in the low half, or an index
	_     [20]byte
}

func setUp(fd int) error {
	var r ifreq
	copy(r.name[:], execproto.TunName)
	r.value = unix.IFF_TUN | unix.IFF_NO_PI
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&r))); e != 0 {
		return failed("making a network interface", e)
	}
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return failed("opening netlink", err)
	}
	defer unix.Close(s)
	in, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return failed("opening a socket", err)
	}
	defer unix.Close(in)
	r.value = 0
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(in), unix.SIOCGIFINDEX,
		uintptr(unsafe.Pointer(&r))); e != 0 {
		return failed("finding the network interface", e)
	}
	index := uint32(r.value)
	n := binary.NativeEndian
	link := make([]byte, unix.SizeofIfInfomsg)
	n.PutUint32(link[4:], index)
	n.PutUint32(link[8:], unix.IFF_UP)
	n.PutUint32(link[12:], unix.IFF_UP)
	link = attr(link, unix.IFLA_MTU, n.AppendUint32(nil, execproto.TunMTU))
	if err := netlink(s, unix.RTM_NEWLINK, 0, link); err != nil {
		return failed("bringing the network interface up", err)
	}
	for _, family := range []struct {
		af         byte
		bits       byte
		addr, peer []byte
	}{
		{unix.AF_INET, 32, addr4(execproto.TunAddr4), addr4(execproto.TunServer4)},
		{unix.AF_INET6, 128, addr6(execproto.TunAddr6), addr6(execproto.TunServer6)},
	} {
		// no duplicate address detection: a link with two ends has no duplicates
		a := []byte{family.af, family.bits, unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
		a = n.AppendUint32(a, index)
		a = attr(a, unix.IFA_LOCAL, family.addr)
		a = attr(a, unix.IFA_ADDRESS, family.peer)
		rt := []byte{family.af, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST,
			0, 0, 0, 0}
		rt = attr(rt, unix.RTA_OIF, n.AppendUint32(nil, index))
		err := netlink(s, unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, a)
		if err == nil {
			err = netlink(s, unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, rt)
		}
		if err != nil && family.af == unix.AF_INET { // IPv6 may be missing in the kernel or disabled by an engine
			return failed("giving the network interface its address", err)
		}
	}
	return nil
}

// attr appends an attribute of a netlink message.
func attr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// netlink sends one request and waits for its acknowledgement.
func netlink(s int, kind uint16, flags uint16, body []byte) error {
	n := binary.NativeEndian
	b := n.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	b = n.AppendUint16(b, kind)
	b = n.AppendUint16(b, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	b = n.AppendUint32(b, 1)
	b = n.AppendUint32(b, 0)
	b = append(b, body...)
	if err := unix.Sendto(s, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	in := make([]byte, 4096)
	for {
		m, _, err := unix.Recvfrom(s, in, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		if m < unix.SizeofNlMsghdr+4 {
			return errors.New("a short answer")
		}
		if n.Uint16(in[4:]) != unix.NLMSG_ERROR {
			continue
		}
		if e := int32(n.Uint32(in[unix.SizeofNlMsghdr:])); e != 0 {
			return unix.Errno(-e)
		}
		return nil
	}
}

// addr4 parses one of the addresses above: four decimal numbers.
func addr4(s string) []byte {
	var b []byte
	v := byte(0)
	for i := range len(s) {
		if s[i] == '.' {
			b, v = append(b, v), 0
		} else {
			v = v*10 + s[i] - '0'
		}
	}
	return append(b, v)
}

// addr6 parses one of the addresses above: groups of four digits, "::", one digit.
func addr6(s string) []byte {
	b := make([]byte, 16)
	hex := func(c byte) byte {
		if c >= 'a' {
			return c - 'a' + 10
		}
		return c - '0'
	}
	at := 0
	for i := 0; i+4 < len(s) && s[i] != ':'; i += 5 {
		b[at], b[at+1] = hex(s[i])<<4|hex(s[i+1]), hex(s[i+2])<<4|hex(s[i+3])
		at += 2
	}
	b[15] = hex(s[len(s)-1])
	return b
}
