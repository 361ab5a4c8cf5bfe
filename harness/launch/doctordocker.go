package launch

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
)

// dockerFact checks a finding about a container engine in more detail.
func dockerFact(f Finding) Finding {
	switch f.What {
	case "folder":
		return engineDisk(f.Text)
	case "addresses":
		f.State, f.Hint = addresses(f.Text)
	case "memory", "cpus", "network":
		f.State = Fair
	}
	return f
}

// engineDisk reports on the disk that holds the engine's images and containers.
func engineDisk(dir string) Finding {
	f := Finding{State: Good, What: "space", Text: dir}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		f.State, f.Text = Fair, fmt.Sprintf("%s: %v", dir, err)
		return f
	}
	free := int64(st.Bavail) * st.Bsize
	f.Text = fmt.Sprintf("%s free for images and containers, in %s", size(free), dir)
	if free < 5<<30 {
		f.State, f.Hint = Fair, "images are large: make room with evalrun images prune"
	}
	return f
}

// addresses checks whether another network on this machine uses the address range of our bridges.
func addresses(text string) (state, hint string) {
	word, _, _ := strings.Cut(text, ",")
	ours, err := netip.ParsePrefix(strings.TrimSpace(word))
	if err != nil {
		return Good, ""
	}
	f, err := os.Open("/proc/net/route")
	if err != nil {
		return Good, ""
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		w := strings.Fields(sc.Text())
		if len(w) < 8 {
			continue
		}
		if p, ok := routePrefix(w[1], w[7]); ok && p.Bits() > 0 && p.Overlaps(ours) && !strings.HasPrefix(w[0], "br-") {
			return Fair, fmt.Sprintf("this machine has a route to %s by %s: a session's bridge may hide it", p, w[0])
		}
	}
	return Good, ""
}

// routePrefix parses a route's destination and mask, which are hexadecimal in host byte order.
func routePrefix(dest, mask string) (netip.Prefix, bool) {
	a, err1 := hex.DecodeString(dest)
	m, err2 := hex.DecodeString(mask)
	if err1 != nil || err2 != nil || len(a) != 4 || len(m) != 4 {
		return netip.Prefix{}, false
	}
	slices.Reverse(a)
	n := 0
	for _, b := range m {
		n += bits.OnesCount8(b)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(a)), n), true
}

// transparent reports whether sandboxes with network access can reach hosts directly or only
// through a proxy.
func transparent() Finding {
	f := Finding{State: Good, What: "network", Text: "machines reach what they may directly, and by a proxy"}
	t, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		f.State, f.Hint = Fair, "load the kernel's module tun (modprobe tun), and give this user /dev/net/tun"
		f.Text = fmt.Sprintf("machines reach what they may only by a proxy (HTTP_PROXY …): %v", err)
		return f
	}
	t.Close()
	return f
}
