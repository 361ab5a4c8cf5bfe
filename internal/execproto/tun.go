package execproto

// KindTun takes over the machine's network interface → Result, body: String, what does not work
// ("": all does); then packets both ways as data: each is two bytes of length, big endian, and an
// IP packet. A later one ends the one before.
const KindTun = 0x30

// The interface: a link between the machine and whoever answers its packets. Nothing on it is real
// but these addresses, so they are taken from the far ends of ranges that hardly anybody uses.
const (
	TunName    = "tun0"
	TunMTU     = 32000 // a packet with its length fits in one data frame, and large ones cost the least
	TunAddr4   = "10.255.255.2"
	TunAddr6   = "fd65:7661:6c72::2"
	TunServer4 = "10.255.255.1" // answers DNS
	TunServer6 = "fd65:7661:6c72::1"
	ResolvConf = "nameserver " + TunServer4 + "\n"
)
