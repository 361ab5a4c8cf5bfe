package pool

import (
	"errors"
	"net"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// flags of browsers in a pool.
func (o *Options) flags() []string {
	return []string{"--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--dns-prefetch-disable", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.*"}
}

type cage struct{}

type Isolated struct{}

func (Isolated) Works() bool                                  { return false }
func Isolation(path string) Isolated                          { return Isolated{} }
func newCage(dir, path string, files []string) (*cage, error) { return nil, errors.ErrUnsupported }
func (c *cage) options(o *cdp.Options)                        {}
func (c *cage) enter() error                                  { return nil }
func (c *cage) own(string) error                              { return nil }
func (c *cage) close()                                        {}
func (c *cage) listen() (net.Listener, string, error)         { return nil, "", errors.ErrUnsupported }
