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

// A Wish says what the pages of a context may reach. Everything that a context sends goes through a
// proxy of its own in this process, which resolves names, judges addresses and dials: see package
// egress. What is not the internet's (loopback, private and link-local addresses, metadata
// services, this machine's own) is reached only where the wish names it.
type Wish struct {
	Network sandbox.Network // the zero value: nothing but Hosts
	// Hosts are sites of ours ("127.0.0.1:40123") that are reached whatever the policy says: those
	// that the task is served from.
	Hosts []string
	// Dial, when set, is asked first for addresses of the loopback: a machine's own services, say.
	// Where it is nil, or says ErrElsewhere, the loopback is reached as far as Hosts and Network
	// name it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Files are folders whose files pages may load by file: addresses and be given for upload. Each
	// lies in one of [Options].Files. Empty: no file: address is loaded.
	Files []string
	// Uploads are folders whose files pages may be given for upload, and no more: each is copied
	// first. Where Files is empty too, no file can be uploaded but what the context has downloaded.
	Uploads []string
	// Alone: the context's browser is for no other.
	Alone bool
}

func (w *Wish) check(files []string) error {
	if _, err := egress.Parse(w.Network); err != nil {
		return err
	}
	for _, h := range w.Hosts {
		if _, port, err := net.SplitHostPort(h); err != nil || port == "" {
			return fmt.Errorf("browser: %q is no site of ours; write host:port", h)
		}
	}
	for _, f := range w.Files {
		if !slices.ContainsFunc(files, func(dir string) bool {
			rel, err := filepath.Rel(dir, f)
			return err == nil && filepath.IsLocal(rel)
		}) {
			return fmt.Errorf("browser: folder %s is not among those that the pool gives its browsers", f)
		}
	}
	return nil
}

// ErrElsewhere is the error of a [Wish]'s Dial for an address that is none of its own.
var ErrElsewhere = errors.New("nothing of the task's own is there")

// own reaches what is the wish's own.
func (w *Wish) own(ctx context.Context, host string, port uint16) (net.Conn, bool, error) {
	addr := net.JoinHostPort(host, strconv.Itoa(int(port)))
	var d net.Dialer
	for _, h := range w.Hosts {
		if strings.EqualFold(h, addr) {
			c, err := d.DialContext(ctx, "tcp", addr)
			return c, true, err
		}
	}
	if w.Dial != nil && local(host) {
		c, err := w.Dial(ctx, "tcp", addr)
		return c, !errors.Is(err, ErrElsewhere), err
	}
	return nil, false, nil
}

// local reports whether a host is the loopback.
func local(host string) bool {
	host = strings.TrimSuffix(host, ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}

// refuse are the addresses that no page loads, and no agent either: what is on this machine, and
// what is the browser's own. Those of the allowed folders are excepted.
var refuse = []string{"file:*", "chrome:*", "chrome-*:*", "devtools:*", "view-source:*", "filesystem:*", "about:*",
	"isolated-app:*", "ftp:*"}

var allow = []string{"about:blank", "about:blank#*", "about:blank?*", "about:srcdoc*", "chrome-error://chromewebdata/"}

// A lease is what belongs to one context: its proxy and its folders.
type lease struct {
	u     *unit
	a     *Access
	gate  *egress.Gate
	files string // folder
	once  sync.Once

	mu     sync.Mutex
	urls   map[string]*sandbox.Refusal
	fails  map[string]string // host → what Chromium calls it
	failed string            // the last one
}

// maxFails bounds how many hosts are remembered.
const maxFails = 256

// fail remembers why a host could not be reached: the browser itself only learns that it was in
// vain.
func (l *lease) fail(host string, _ uint16, err error) {
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
	if l.fails == nil {
		l.fails = map[string]string{}
	}
	if len(l.fails) < maxFails && len(host) < 256 {
		l.fails[strings.ToLower(host)] = text
	}
	l.failed = text
}

// netError is why a navigation to an address failed; by way of a redirection it may be another host
// that could not be reached.
func (l *lease) netError(address string) string {
	host := ""
	if u, err := url.Parse(address); err == nil {
		host = strings.ToLower(u.Hostname())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.fails[host]; t != "" {
		return t
	}
	return l.failed
}

// prepare makes all that a context needs before it can be. With s it becomes that one.
func (l *lease) prepare(name string, o *cdp.ContextOptions, s *spare) (err error) {
	w := &l.a.w
	if s == nil {
		if s, err = l.u.newSpare(); err != nil {
			return err
		}
	}
	if l.gate, err = egress.Serve(s.port, w.Network,
		egress.Options{Own: w.own, Resolver: l.u.p.o.Resolver, Failed: l.fail}); err != nil {
		return err
	}
	l.a.mu.Lock()
	l.a.open = append(l.a.open, l)
	l.a.mu.Unlock()
	o.Blank, o.Proxy, o.Bypass = s.blank, s.proxy, bypass

	l.files = filepath.Join(l.u.dir, "files", name)
	rel := filepath.Join("files", name)
	o.Uploads, o.UploadFrom = filepath.Join(l.files, "given"), slices.Concat(w.Files, w.Uploads)
	dirs := []string{rel, filepath.Join(rel, "given")}
	if o.Downloads != "" {
		o.Downloads = filepath.Join(l.files, "taken")
		dirs = append(dirs, filepath.Join(rel, "taken"))
	}
	for _, d := range dirs {
		if err := l.u.folder(d); err != nil {
			return err
		}
	}
	o.Refuse = append(slices.Clone(o.Refuse), refuse...)
	o.Allow = append(slices.Clone(o.Allow), allow...)
	for _, f := range w.Files {
		o.Allow = append(o.Allow, (&url.URL{Scheme: "file", Path: filepath.Clean(f) + "/"}).String()+"*")
	}
	o.NetError = l.netError
	if o.Storage == 0 {
		o.Storage = l.u.p.o.Storage
	}
	told := o.OnRefuse
	o.OnRefuse = func(url string) {
		l.refuse(url)
		if told != nil {
			told(url)
		}
	}
	return nil
}

// maxSchemes bounds what is counted of refused addresses.
const maxSchemes = 20

// refuse counts a refused address by its scheme: the rest may be as long as a page likes, and is in
// the action or on the page anyway.
func (l *lease) refuse(url string) {
	scheme, _, _ := strings.Cut(url, ":")
	if len(scheme) > 40 {
		scheme = scheme[:40]
	}
	scheme = strings.ToLower(scheme) + ":"
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.urls[scheme]; r != nil {
		r.Count++
		return
	}
	if l.urls == nil {
		l.urls = map[string]*sandbox.Refusal{}
	}
	if len(l.urls) < maxSchemes {
		l.urls[scheme] = &sandbox.Refusal{Host: scheme, Why: "an address of this machine or of the browser itself",
			Count: 1}
	}
}

func (l *lease) refusals() (all []sandbox.Refusal) {
	if l.gate != nil {
		all = l.gate.Refused()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.urls {
		all = append(all, *r)
	}
	return all
}

// cut ends the context's way out.
func (l *lease) cut() {
	if l.gate != nil {
		l.gate.Close()
	}
}

// end takes back all that belongs to the context, and its place.
func (l *lease) end(err error) {
	l.once.Do(func() {
		l.cut()
		l.a.mu.Lock()
		l.a.open = slices.DeleteFunc(l.a.open, func(o *lease) bool { return o == l })
		l.a.refused = append(l.a.refused, l.refusals()...)
		l.a.mu.Unlock()
		if l.files != "" {
			if rerr := os.RemoveAll(l.files); rerr != nil {
				err = errors.Join(err, rerr)
			}
		}
		l.u.free(l, err)
	})
}

// loopback is an address of the loopback that nobody guesses, so that a port of it belongs to whom
// it was told.
func loopback() netip.Addr {
	var b [3]byte
	rand.Read(b[:])
	b[0], b[2] = b[0]|1, b[2]&0xfe|2 // neither the usual one, nor the first or last of a network
	return netip.AddrFrom4([4]byte{127, b[0], b[1], b[2]})
}
