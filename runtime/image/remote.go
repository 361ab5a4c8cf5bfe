package image

import (
	"errors"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// remoteStart matches what a remote source may begin with before a variable.
var remoteStart = regexp.MustCompile(`^(?:$|ht?t?p?s?$|https?:|gi?$|git|ss?$|ssh|[^/]*@)`)

// remote checks sources of ADD that the engine itself would fetch, on its own network.
func (j *checker) remote(s *step) error {
	if s.name != "ADD" {
		return nil
	}
	sources, _ := s.paths()
	for _, src := range sources {
		v, known := j.expand(j.unquote(src), j.vars)
		if !known {
			if j.offline {
				return wrong(s.line, "ADD %s: the build has no network, and the variable may name something remote",
					src)
			}
			if before, _, _ := strings.Cut(j.unquote(src), "$"); remoteStart.MatchString(before) {
				// The base image's variables are not known here, and the engine would fetch any
				// address in them.
				return wrong(s.line, "ADD %s: the variable may name the engine's own machine or a private network; "+
					"give it its value in the Dockerfile, or use COPY", src)
			}
			continue
		}
		host, is := remoteHost(v)
		switch {
		case !is:
		case j.offline:
			return wrong(s.line, "ADD %s: the build has no network", v)
		case leadsInside(host):
			return wrong(s.line, "ADD %s: the engine would fetch it from its own machine or a private network", v)
		}
	}
	return nil
}

// triggers checks the ONBUILD steps of a base image.
func (r *recipe) triggers(about About, b base, steps []string) error {
	if len(steps) == 0 {
		return nil
	}
	j := &checker{about: about, classic: r.classic, offline: r.img.Network == "none", args: r.img.Args}
	_, err := j.read("FROM scratch\n" + strings.Join(steps, "\n"))
	var line *lineError
	if errors.As(err, &line) {
		err = errors.New(line.what)
	}
	if err != nil {
		return wrong(b.line, "the base %s adds steps of its own (ONBUILD): %v", b.ref, err)
	}
	return nil
}

// remoteHost reports whether ADD would fetch a source, and from which host.
func remoteHost(src string) (host string, is bool) {
	if u, err := url.Parse(src); err == nil && u.Scheme != "" && strings.Contains(src, "://") {
		return u.Hostname(), true
	}
	if strings.Contains(src, "://") {
		return "", true
	}
	if user, rest, ok := strings.Cut(src, "@"); ok && !strings.Contains(user, "/") {
		if host, _, ok := strings.Cut(rest, ":"); ok {
			return host, true
		}
	}
	return "", false
}

// notPublic are addresses that netip considers public but that lead inside: those of carriers and
// clouds, and those that contain another address.
var notPublic = func() (all []netip.Prefix) {
	for _, p := range strings.Fields("0.0.0.0/8 100.64.0.0/10 168.63.129.16/32 192.0.0.0/24 192.88.99.0/24 " +
		"198.18.0.0/15 240.0.0.0/4 2001::/23 2002::/16") {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}()

// global is the range of public IPv6 addresses.
var global = netip.MustParsePrefix("2000::/3")

func leadsInside(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if a, err := netip.ParseAddr(host); err == nil {
		a = a.WithZone("").Unmap()
		return !a.IsGlobalUnicast() || a.IsPrivate() || a.Is6() && !global.Contains(a) ||
			slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if last != "" && last[0] >= '0' && last[0] <= '9' {
		return true // an unusual form of an IPv4 address: 2130706433, 127.1, 0x7f.1
	}
	return host == "" || !strings.Contains(host, ".") ||
		slices.Contains([]string{".localhost", ".local", ".internal"}, path.Ext(host))
}
