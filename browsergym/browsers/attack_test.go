package browsers_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// names answers for the names of the tests.
type names map[string]string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	host = strings.TrimSuffix(host, ".")
	if a, ok := n[host]; ok {
		return []netip.Addr{netip.MustParseAddr(a)}, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// A trap counts who comes to a service of this machine, by TCP or UDP, on its loopback and on its
// address in the network.
type trap struct {
	ports [2]int // TCP, UDP
	hits  atomic.Int64
	lan   string // "": none
}

func newTrap(t *testing.T) *trap {
	tr := &trap{}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); u.Close() })
	tr.ports = [2]int{l.Addr().(*net.TCPAddr).Port, u.LocalAddr().(*net.UDPAddr).Port}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tr.hits.Add(1)
			t.Errorf("somebody came: %s to %s", c.RemoteAddr(), c.LocalAddr())
			c.Close()
		}
	}()
	go func() {
		b := make([]byte, 2048)
		for {
			_, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			tr.hits.Add(1)
			t.Errorf("somebody sent a packet: %s", from)
		}
	}()
	if c, err := net.Dial("udp", "192.0.2.1:9"); err == nil { // nothing is sent
		tr.lan = c.LocalAddr().(*net.UDPAddr).IP.String()
		c.Close()
	}
	return tr
}

// hosts are the ways to write this machine's addresses.
func (tr *trap) hosts() []string {
	all := []string{"127.0.0.1", "localhost", "a.localhost", "[::1]", "2130706433", "0x7f.1", "0.0.0.0", "127.1",
		"[::ffff:127.0.0.1]", "home.test", "LOCALHOST.", "127.0.0.1.", "[::]"}
	if tr.lan != "" {
		all = append(all, tr.lan, "lan.test")
	}
	return all
}

// modes runs a test with and without namespaces: what keeps pages away from this machine must not
// rest on them alone.
func modes(t *testing.T, f func(t *testing.T, o browsers.Options)) {
	needBrowser(t)
	for _, plain := range []bool{false, true} {
		t.Run(map[bool]string{false: "namespaces", true: "plain"}[plain], func(t *testing.T) {
			path, err := cdp.Find("")
			if err != nil {
				t.Fatal(err)
			}
			if i := browsers.Isolated(path); !plain && !i.Namespaces {
				t.Skipf("no namespaces here: %s", i.Why)
			}
			f(t, browsers.Options{Plain: plain})
		})
	}
}

// everything is what a script can try to reach an address with; it ends when all has ended, or
// after some seconds, or once all that is hoped for has been answered.
const everything = `(async () => {
	const [host, tcp, udp, limit, ...hoped] = %q.split(" ");
	const u = "http://" + host + ":" + tcp + "/", got = [];
	const wait = ms => new Promise(r => setTimeout(r, ms));
	const all = [];
	const hope = (name, f) => all.push((async () => { try { const r = await f(); if (r) got.push(name + ": " + r) } catch (e) {} })());
	const element = (tag, props) => new Promise(r => { const e = document.createElement(tag); Object.assign(e, props); e.onload = () => r(tag === "iframe" ? "" : "loaded"); e.onerror = () => r(""); document.body.append(e) });
	hope("fetch", async () => { await fetch(u, {mode: "no-cors"}); return "answered" });
	hope("img", () => element("img", {src: u + "i.png"}));
	hope("script", () => element("script", {src: u + "s.js"}));
	hope("style", () => element("link", {rel: "stylesheet", href: u + "s.css"}));
	for (const rel of ["preconnect", "dns-prefetch", "prefetch", "preload", "modulepreload", "prerender"]) hope(rel, () => { element("link", {rel, href: u + rel, as: "script"}) });
	hope("iframe", () => element("iframe", {src: u + "frame"}));
	hope("object", () => element("object", {data: u + "object"}));
	hope("media", () => { const v = document.createElement("video"); v.src = u + "v.mp4"; document.body.append(v) });
	hope("websocket", () => new Promise(r => { const w = new WebSocket("ws://" + host + ":" + tcp + "/w"); w.onopen = () => r("open"); w.onerror = () => r("") }));
	hope("eventsource", () => new Promise(r => { const e = new EventSource(u); e.onopen = () => r("open"); e.onerror = () => { e.close(); r("") } }));
	hope("beacon", () => { navigator.sendBeacon(u, "x") });
	hope("form", () => { const f = document.createElement("form"); f.action = u; f.method = "post"; f.target = "_blank"; document.body.append(f); f.submit() });
	hope("popup", () => { window.open(u) });
	hope("redirect", () => fetch("/to?" + encodeURIComponent(u), {mode: "no-cors"}).then(r => r.status === 403 ? "" : "answered"));
	hope("redirected frame", () => element("iframe", {src: "/to?" + encodeURIComponent(u)}));
	hope("https", async () => { await fetch("https://" + host + ":" + tcp + "/", {mode: "no-cors"}); return "answered" });
	hope("worker", () => new Promise(r => { const w = new Worker(URL.createObjectURL(new Blob(["fetch('" + u + "', {mode: 'no-cors'}).then(() => postMessage('answered'), () => postMessage(''))"]))); w.onmessage = e => r(e.data) }));
	hope("service worker", async () => {
		await navigator.serviceWorker.register("/sw.js?" + encodeURIComponent(u));
		const s = await navigator.serviceWorker.ready;
		return new Promise(r => { const c = new MessageChannel(); c.port1.onmessage = e => r(e.data); s.active.postMessage(u, [c.port2]) });
	});
	hope("webtransport", async () => { const w = new WebTransport("https://" + host + ":" + udp + "/"); await w.ready; return "ready" });
	hope("webrtc", async () => {
		const p = new RTCPeerConnection({iceServers: [{urls: "stun:" + host + ":" + udp}, {urls: "turn:" + host + ":" + tcp + "?transport=tcp", username: "a", credential: "b"}]});
		const seen = [];
		p.onicecandidate = e => { if (e.candidate) seen.push(e.candidate.candidate) };
		p.createDataChannel("x");
		await p.setLocalDescription(await p.createOffer());
		// As if another peer were there.
		const q = p.localDescription.sdp;
		for (let i = 0; i < 20 && p.iceGatheringState !== "complete"; i++) await wait(100);
		return seen.filter(c => /\d+\.\d+\.\d+\.\d+|typ srflx/.test(c)).join(" ");
	});
	let ended = false;
	Promise.allSettled(all).then(() => ended = true);
	for (let i = 0; i < limit * 10 && !ended && !(hoped.length && hoped.every(h => got.includes(h.replace("_", " ") + ": answered"))); i++) await wait(100);
	return got.join("; ");
})()`

const serviceWorker = `self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", e => e.waitUntil(clients.claim()));
self.addEventListener("message", e => fetch(e.data, {mode: "no-cors"}).then(() => e.ports[0].postMessage("answered"), () => e.ports[0].postMessage("")));`

// hostile is the site of the page that attacks.
func hostile(t *testing.T) (url, host string) {
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/to":
			w.Header().Set("Location", unescape(r.URL.RawQuery))
			w.WriteHeader(http.StatusFound)
		case "/sw.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, serviceWorker)
		default:
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<title>hostile</title><body>")
		}
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String() + "/", l.Addr().String()
}

func unescape(s string) string {
	return strings.NewReplacer("%3A", ":", "%2F", "/", "%5B", "[", "%5D", "]").Replace(s)
}

// Nothing that a page can do reaches a service of this machine, though its network is the public
// one.
func TestServicesOfThisMachine(t *testing.T) {
	modes(t, func(t *testing.T, o browsers.Options) {
		t.Parallel() // there is much to wait for
		tr := newTrap(t)
		o.Resolver = names{"home.test": "127.0.0.1", "lan.test": tr.lan}
		p := newPool(t, o)
		url, host := hostile(t)
		for _, n := range []sandbox.Network{{Mode: "public"}, {}} {
			a := p.For(browsers.AccessOptions{Network: n, Hosts: []string{host}})
			c, _ := open(t, a, cdp.ContextOptions{MaxPages: 500})
			hosts := tr.hosts()
			if n.Mode == "" || o.Plain { // the rest is the proxy's business, which is the same
				hosts = slices.DeleteFunc([]string{"127.0.0.1", "localhost", tr.lan},
					func(h string) bool { return h == "" })
			}
			var all sync.WaitGroup
			for _, h := range hosts {
				page, err := c.NewPage(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					var got string
					err := page.GotoWithin(ctx, url, time.Minute)
					if err == nil {
						err = page.Evaluate(ctx,
							fmt.Sprintf(everything, fmt.Sprintf("%s %d %d 4", h, tr.ports[0], tr.ports[1])), &got)
					}
					if err != nil || got != "" {
						t.Errorf("network %q, %s: %s %v", n.Mode, h, got, err)
					}
					if err := page.GotoWithin(ctx, fmt.Sprintf("http://%s:%d/", h, tr.ports[0]),
						time.Minute); err == nil {
						t.Errorf("network %q: %s was opened", n.Mode, h)
					}
				})
			}
			all.Wait()
			if n.Mode == "" { // what is allowed is reached by all these ways, so that the above means something
				name, port, _ := net.SplitHostPort(host)
				_, page := open(t, a, cdp.ContextOptions{})
				if err := page.GotoWithin(t.Context(), url, time.Minute); err != nil {
					t.Fatal(err)
				}
				ways := []string{"fetch", "redirect", "worker", "service_worker"}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				var got string
				err := page.Evaluate(ctx,
					fmt.Sprintf(everything,
						fmt.Sprintf("%s %s %d 60 %s", name, port, tr.ports[1], strings.Join(ways, " "))), &got)
				cancel()
				for _, way := range ways {
					if way = strings.ReplaceAll(way, "_", " "); err != nil || !strings.Contains(got, way+": answered") {
						t.Errorf("the page's own site was not reached by %s: %s %v", way, got, err)
					}
				}
			}
			if r := a.Refused(); len(r) == 0 {
				t.Error("nothing is said to be refused")
			}
		}
		if n := tr.hits.Load(); n > 0 {
			t.Errorf("%d came through", n)
		}
	})
}

// Places that are refused by their address, whatever names them.
func TestPlacesThatAreRefused(t *testing.T) {
	modes(t, func(t *testing.T, o browsers.Options) {
		o.Resolver = names{"metadata.test": "169.254.169.254", "private.test": "10.0.0.1", "link.test": "169.254.1.1",
			"six.test": "fd00::1"}
		p := newPool(t, o)
		url, host := hostile(t)
		_, otherHost := site(t, map[string]string{"/": "another's"})
		// another's server, which is that other's alone
		open(t, p.For(browsers.AccessOptions{Hosts: []string{otherHost}}), cdp.ContextOptions{})
		a := p.For(browsers.AccessOptions{Network: sandbox.Network{Mode: "public"}, Hosts: []string{host}})
		_, page := open(t, a, cdp.ContextOptions{})
		places := []string{"169.254.169.254", "metadata.test", "private.test", "link.test", "six.test", "10.1.2.3",
			"192.168.1.1:8080", "100.100.100.200", "[fd00:ec2::254]", otherHost}
		for _, h := range places {
			for _, way := range []string{"http://" + h + "/", url + "to?http://" + h + "/"} {
				if err := page.Goto(t.Context(), way); err == nil {
					t.Errorf("%s was opened", way)
				}
			}
		}
		refused := map[string]string{}
		for _, r := range a.Refused() {
			refused[r.Host] = r.Why
		}
		for _, h := range places {
			h = strings.Trim(strings.TrimSuffix(h, ":8080"), "[]")
			if name, _, ok := strings.Cut(h, ":"); ok && name == "127.0.0.1" {
				h = name
			}
			if refused[h] == "" {
				t.Errorf("%s is not among the refused: %v", h, refused)
			}
		}
	})
}

// Neither an agent nor a page opens what is on this machine, or the browser's own pages.
func TestAddressesOfThisMachine(t *testing.T) {
	modes(t, func(t *testing.T, o browsers.Options) {
		secret, err := os.MkdirTemp("", "pool-secret-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(secret)
		os.Chmod(secret, 0o755)
		shown := filepath.Join(secret, "shown")
		os.Mkdir(shown, 0o755)
		for name, text := range map[string]string{"secret.html": "<title>secret</title>",
			"shown/page.html": "<title>shown</title>"} {
			if err := os.WriteFile(filepath.Join(secret, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		o.Files = []string{shown}
		p := newPool(t, o)
		url, host := hostile(t)
		a := p.For(browsers.AccessOptions{Hosts: []string{host}, Files: []string{shown}})
		_, page := open(t, a, cdp.ContextOptions{})
		file := "file://" + secret + "/secret.html"
		for _, u := range []string{
			"file:///etc/passwd", "FILE:///etc/passwd", " file:///etc/passwd", "fi\tle:///etc/passwd",
			"file:/etc/passwd", "file:\\\\\\etc\\passwd", "file://localhost/etc/passwd",
			"view-source:file:///etc/passwd", "view-source:" + url, "chrome://version/", "chrome://gpu",
			"about:version", "about:gpu", "chrome-untrusted://print/",
			"devtools://devtools/bundled/inspector.html", "chrome-extension://abcdefghijklmnopabcdefghijklmnop/x.html",
			"filesystem:" + url + "temporary/x",
			file, "file://" + shown + "/../secret.html", "file://" + shown + "/%2e%2e/secret.html",
			"file://" + shown + "/..%2fsecret.html", "file:///", "file:///proc/self/environ",
		} {
			err := page.Goto(t.Context(), u)
			if err == nil {
				t.Errorf("%q was opened: %s", u, page.URL())
			}
		}
		for _, u := range []string{"about:blank", "file://" + shown + "/page.html", url,
			"data:text/html,<title>data</title>"} {
			if err := page.Goto(t.Context(), u); err != nil {
				t.Errorf("%s: %v", u, err)
			}
		}
		// By the page itself.
		if err := page.Goto(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		if got := text(t, page, fmt.Sprintf(`(async () => {
			const got = [];
			for (const u of [%q, "file:///etc/passwd", "view-source:" + location.href, "chrome://version/", "devtools://devtools/bundled/inspector.html"]) {
				try { await fetch(u); got.push("fetch " + u) } catch (e) {}
				const f = document.createElement("iframe");
				f.src = u;
				document.body.append(f);
				await new Promise(r => { f.onload = r; setTimeout(r, 300) });
				try { if (f.contentDocument && f.contentDocument.title) got.push("iframe " + u) } catch (e) {}
				const w = window.open(u);
				await new Promise(r => setTimeout(r, 100));
				try { if (w && w.document && w.document.title) got.push("popup " + u) } catch (e) { got.push("popup " + u + ": " + e) }
				if (w) w.close();
			}
			return got.join("; ");
		})()`, file)); got != "" {
			t.Error(got)
		}
		for _, u := range []string{"file:///etc/passwd", "chrome://version/"} {
			text(t, page, fmt.Sprintf("location = %q, ''", u))
			page.Goto(t.Context(), url+"to?"+u)
			if got := page.URL(); strings.HasPrefix(got, "file:") || strings.HasPrefix(got, "chrome:") {
				t.Errorf("the page has come to %s", got)
			}
		}
		schemes := map[string]bool{}
		for _, r := range a.Refused() {
			schemes[r.Host] = true
		}
		if !schemes["file:"] || !schemes["chrome:"] || !schemes["view-source:"] {
			t.Errorf("refused: %+v", a.Refused())
		}
	})
}

// No process of a browser listens for its tools, nor for anything else.
func TestNoToolsPort(t *testing.T) {
	modes(t, func(t *testing.T, o browsers.Options) {
		dir, err := os.MkdirTemp("", "pool-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(dir) })
		os.Chmod(dir, 0o755)
		o.Dir = dir
		p := newPool(t, o)
		c, page := open(t, p.For(browsers.AccessOptions{}), cdp.ContextOptions{})
		if err := page.Goto(t.Context(), "about:blank"); err != nil {
			t.Fatal(err)
		}
		pids := processTree(users(dir))
		if len(pids) < 3 {
			t.Fatalf("processes: %v", pids)
		}
		for _, pid := range pids {
			fds, _ := filepath.Glob("/proc/" + pid + "/fd/*")
			sockets := map[string]bool{}
			for _, fd := range fds {
				if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:[") {
					sockets[strings.Trim(to, "socket:[]")] = true
				}
			}
			for _, kind := range []string{"tcp", "tcp6", "udp", "udp6"} {
				b, _ := os.ReadFile("/proc/" + pid + "/net/" + kind)
				for line := range strings.Lines(string(b)) {
					w := strings.Fields(line)
					if len(w) > 9 && sockets[w[9]] && (w[3] == "0A" || kind[0] == 'u') {
						t.Errorf("process %s has a socket: %s %s", pid, kind, line)
					}
				}
			}
		}
		if !o.Plain { // its network is a loopback with one port
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", c.Browser().PID()))
			if err != nil || strings.Count(string(b), ":") != 1 || !strings.Contains(string(b), "lo:") {
				t.Errorf("interfaces: %s %v", b, err)
			}
			b, _ = os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", c.Browser().PID()))
			if n := strings.Count(string(b), " 0A "); n != 1 {
				t.Errorf("%d ports are open: %s", n, b)
			}
		}
	})
}
