package web

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"unicode"
)

// Address reads the address of a page that a task begins with: one at http:// or https://, whose
// host is a name or an address in its usual form. Browsers read 0x7f.1 and 2130706433 as 127.0.0.1,
// too, which who judges an address, by a policy for one, would take for names.
func Address(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("it is no address")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("only pages at http:// and https:// can be opened")
	}
	host := strings.TrimRight(u.Hostname(), ".")
	last := []rune(host[strings.LastIndexByte(host, '.')+1:])
	if _, err := netip.ParseAddr(host); err != nil && (len(last) == 0 || unicode.IsNumber(last[0])) {
		return nil, fmt.Errorf("the host %s is neither a name nor an address in its usual form, such as 127.0.0.1",
			u.Hostname())
	}
	return u, nil
}
