package browsers

// flags of browsers in a pool, beside those that all have.
func (o *Options) flags() []string {
	return []string{
		// What does not know the proxy does not get out: neither by UDP, nor by asking a name
		// server.
		"--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--dns-prefetch-disable", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.*",
		// Each context has a proxy of its own, but forgets it when the process that does the
		// browser's networking dies and is started again: then this one counts, behind which is
		// nothing.
		"--proxy-server=socks5://127.0.0.1:9", "--proxy-bypass-list=<-loopback>",
	}
}
