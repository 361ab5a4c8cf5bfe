package browsers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/runtime/egress"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// AccessOptions say what the pages of a context may reach. All traffic of a context goes through
// its own proxy in this process, which resolves names, checks addresses and dials (package egress).
// Loopback, private and link-local addresses, metadata services and this machine are reachable only
// if the options name them.
type AccessOptions struct {
	Network sandbox.Network // the zero value allows only Hosts
	// Hosts are the sites that serve the task ("127.0.0.1:40123"). They are reachable whatever the
	// policy says.
	Hosts []string
	// Dial, if set, is called first for loopback addresses, for example for a machine's own
	// services. If it is nil or returns ErrNotOwn, loopback addresses are reachable as far as Hosts
	// and Network name them.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Files are folders whose files pages may load by file: addresses and upload. Each must be in
	// one of [Options].Files. If empty, no file: address can be loaded.
	Files []string
	// Uploads are folders whose files pages may only upload; each file is copied first. If Files is
	// empty too, only files that the context has downloaded can be uploaded.
	Uploads []string
	// Alone gives each context its own browser.
	Alone bool
}

func (o *AccessOptions) check(files []string) error {
	if _, err := egress.Parse(o.Network); err != nil {
		return err
	}
	for _, h := range o.Hosts {
		if _, port, err := net.SplitHostPort(h); err != nil || port == "" {
			return fmt.Errorf("browser: %q is not an address; write host:port", h)
		}
	}
	for _, f := range o.Files {
		if !slices.ContainsFunc(files, func(dir string) bool {
			rel, err := filepath.Rel(dir, f)
			return err == nil && filepath.IsLocal(rel)
		}) {
			return fmt.Errorf("browser: folder %s is not among those that the pool gives its browsers", f)
		}
	}
	return nil
}

// ErrNotOwn is returned by [AccessOptions].Dial for an address that it does not serve.
var ErrNotOwn = errors.New("nothing of the task's own is there")

// dialOwn dials an address of Hosts or Dial. The bool reports whether it is one.
func (o *AccessOptions) dialOwn(ctx context.Context, host string, port uint16) (net.Conn, bool, error) {
	addr := net.JoinHostPort(host, strconv.Itoa(int(port)))
	var d net.Dialer
	for _, h := range o.Hosts {
		if strings.EqualFold(h, addr) {
			c, err := d.DialContext(ctx, "tcp", addr)
			return c, true, err
		}
	}
	if o.Dial != nil && isLoopback(host) {
		c, err := o.Dial(ctx, "tcp", addr)
		return c, !errors.Is(err, ErrNotOwn), err
	}
	return nil, false, nil
}

// isLoopback reports whether a host is a loopback name or address.
func isLoopback(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// refuse lists address patterns that pages and agents may not load: local files and the browser's
// internal pages. Files in allowed folders are exceptions.
var refuse = []string{"file:*", "chrome:*", "chrome-*:*", "devtools:*", "view-source:*", "filesystem:*", "about:*",
	"isolated-app:*", "ftp:*"}

var allow = []string{"about:blank", "about:blank#*", "about:blank?*", "about:srcdoc*", "chrome-error://chromewebdata/"}

// A lease holds the proxy and the folder of one context.
type lease struct {
	inst   *instance
	access *Access
	proxy  *egress.Gate
	dir    string // folder
	once   sync.Once

	mu             sync.Mutex
	refusedSchemes map[string]*sandbox.Refusal
	dialErrors     map[string]string // host → Chromium's error name
	lastDialError  string            // the last one
}

// maxDialErrors bounds dialErrors.
const maxDialErrors = 256

// recordDialError records why a host could not be reached. The browser learns only that its proxy
// failed.
func (l *lease) recordDialError(host string, _ uint16, err error) {
	var ne net.Error
	var de *net.DNSError
	text := "net::ERR_CONNECTION_FAILED"
	switch {
	case errors.As(err, new(*egress.Denied)):
		text = "net::ERR_BLOCKED_BY_ADMINISTRATOR"
	case errors.As(err, &de) && !de.IsTimeout:
		text = "net::ERR_NAME_NOT_RESOLVED"
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "net::ERR_CONNECTION_REFUSED"
	case errors.Is(err, syscall.ECONNRESET):
		text = "net::ERR_CONNECTION_RESET"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		text = "net::ERR_ADDRESS_UNREACHABLE"
	case errors.As(err, &ne) && ne.Timeout():
		text = "net::ERR_CONNECTION_TIMED_OUT"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dialErrors == nil {
		l.dialErrors = map[string]string{}
	}
	if len(l.dialErrors) < maxDialErrors && len(host) < 256 {
		l.dialErrors[strings.ToLower(host)] = text
	}
	l.lastDialError = text
}

// netError returns why a navigation to an address failed. After a redirect another host may be the
// one that could not be reached; then the last error is returned.
func (l *lease) netError(address string) string {
	host := ""
	if u, err := url.Parse(address); err == nil {
		host = strings.ToLower(u.Hostname())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.dialErrors[host]; t != "" {
		return t
	}
	return l.lastDialError
}

// setUp makes the proxy and the folders of a context and sets its options. s is the prewarmed
// context to use, nil for none.
func (l *lease) setUp(name string, o *cdp.ContextOptions, s *prewarmed) (err error) {
	a := &l.access.o
	if s == nil {
		if s, err = l.inst.newPrewarmed(); err != nil {
			return err
		}
	}
	if l.proxy, err = egress.Serve(s.listener, a.Network,
		egress.Options{Own: a.dialOwn, Resolver: l.inst.p.o.Resolver, Failed: l.recordDialError}); err != nil {
		return err
	}
	l.access.mu.Lock()
	l.access.open = append(l.access.open, l)
	l.access.mu.Unlock()
	o.Prewarmed, o.Proxy, o.Bypass = s.context, s.proxy, bypass

	l.dir = filepath.Join(l.inst.dir, "files", name)
	rel := filepath.Join("files", name)
	o.Uploads, o.UploadFrom = filepath.Join(l.dir, "given"), slices.Concat(a.Files, a.Uploads)
	dirs := []string{rel, filepath.Join(rel, "given")}
	if o.Downloads != "" {
		o.Downloads = filepath.Join(l.dir, "taken")
		dirs = append(dirs, filepath.Join(rel, "taken"))
	}
	for _, d := range dirs {
		if err := l.inst.folder(d); err != nil {
			return err
		}
	}
	o.Refuse = append(slices.Clone(o.Refuse), refuse...)
	o.Allow = append(slices.Clone(o.Allow), allow...)
	for _, f := range a.Files {
		o.Allow = append(o.Allow, (&url.URL{Scheme: "file", Path: filepath.Clean(f) + "/"}).String()+"*")
	}
	o.NetError = l.netError
	if o.Storage == 0 {
		o.Storage = l.inst.p.o.Storage
	}
	onRefuse := o.OnRefuse
	o.OnRefuse = func(url string) {
		l.countRefusal(url)
		if onRefuse != nil {
			onRefuse(url)
		}
	}
	return nil
}

// maxSchemes bounds refusedSchemes.
const maxSchemes = 20

// countRefusal counts a refused address by its scheme. The rest of the address may be long, and is
// recorded with the action or the page anyway.
func (l *lease) countRefusal(url string) {
	scheme, _, _ := strings.Cut(url, ":")
	if len(scheme) > 40 {
		scheme = scheme[:40]
	}
	scheme = strings.ToLower(scheme) + ":"
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.refusedSchemes[scheme]; r != nil {
		r.Count++
		return
	}
	if l.refusedSchemes == nil {
		l.refusedSchemes = map[string]*sandbox.Refusal{}
	}
	if len(l.refusedSchemes) < maxSchemes {
		l.refusedSchemes[scheme] = &sandbox.Refusal{Host: scheme,
			Why:   "an address of this machine or of the browser itself",
			Count: 1}
	}
}

func (l *lease) refusals() (all []sandbox.Refusal) {
	if l.proxy != nil {
		all = l.proxy.Refused()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.refusedSchemes {
		all = append(all, *r)
	}
	return all
}

// closeProxy closes the context's proxy.
func (l *lease) closeProxy() {
	if l.proxy != nil {
		l.proxy.Close()
	}
}

// close releases everything that belongs to the context.
func (l *lease) close(err error) {
	l.once.Do(func() {
		l.closeProxy()
		l.access.mu.Lock()
		l.access.open = slices.DeleteFunc(l.access.open, func(o *lease) bool { return o == l })
		l.access.refused = append(l.access.refused, l.refusals()...)
		l.access.mu.Unlock()
		if l.dir != "" {
			if rerr := os.RemoveAll(l.dir); rerr != nil {
				err = errors.Join(err, rerr)
			}
		}
		l.inst.release(l, err)
	})
}

// randomLoopback returns a random loopback address, so that other contexts cannot guess where a
// proxy listens.
func randomLoopback() netip.Addr {
	var b [3]byte
	rand.Read(b[:])
	b[0], b[2] = b[0]|1, b[2]&0xfe|2 // not 127.0.0.x, and not the first or last address of a network
	return netip.AddrFrom4([4]byte{127, b[0], b[1], b[2]})
}
