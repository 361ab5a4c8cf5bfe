package execproto

// KindTun takes over the machine's network interface → Result, body: String, what does not work (""
// if all does); then packets in both directions as data: each is two bytes of length, big endian,
// and an IP packet. A new KindTun stream ends the previous one.
const KindTun = 0x30

// The interface is a link between the machine and the host that answers its packets. Only these
// addresses exist on it, so they are from the far ends of rarely used ranges.
const (
	TunName    = "tun0"
	TunMTU     = 32000 // a packet with its length fits in one data frame, and large packets are cheapest
	TunAddr4   = "10.255.255.2"
	TunAddr6   = "fd65:7661:6c72::2"
	TunServer4 = "10.255.255.1" // answers DNS
	TunServer6 = "fd65:7661:6c72::1"
	ResolvConf = "nameserver " + TunServer4 + "\n"
)
