package browsers

// flags returns the flags of a pool's browsers, in addition to those of package cdp.
func (o *Options) flags() []string {
	return []string{
		// Nothing bypasses the proxy: no UDP and no DNS queries.
		"--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--dns-prefetch-disable", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.*",
		// Each context has its own proxy, but loses it when the network service restarts. Then
		// this address applies, at which nothing listens.
		"--proxy-server=socks5://127.0.0.1:9", "--proxy-bypass-list=<-loopback>",
	}
}
