package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// a machine with a proxy, in memory: good.example is on the list, evil.example is not, and both are
// there.
func proxied(t *testing.T, n sandbox.Network, o Options) (*Gate, *inside, *internet) {
	t.Helper()
	net := newInternet()
	net.names["good.example"] = []string{"93.184.216.34"}
	net.names["evil.example"] = []string{"93.184.216.66"}
	net.names["localhost"] = []string{"127.0.0.1", "::1"}
	net.hosts["93.184.216.34:80"] = web("good")
	net.hosts["93.184.216.66:80"] = web("evil")
	net.hosts["93.184.216.34:443"] = echo
	net.hosts["127.0.0.1:61080"] = web("this host")
	net.hosts["10.0.0.1:80"] = web("the intranet")
	o.Resolver, o.Dialer = net, net
	g := newGate(mustParse(t, n), o)
	in := newInside()
	g.serveProxy(in)
	t.Cleanup(func() { g.Close() })
	return g, in, net
}

// raw sends bytes to the proxy and returns the first line of what comes back, and the rest.
func raw(t *testing.T, in *inside, request string) (status, body string) {
	t.Helper()
	c := in.dial()
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	go io.WriteString(c, request)
	r := bufio.NewReader(c)
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return "closed", err.Error()
	}
	defer resp.Body.Close()
	if resp.StatusCode == 200 && method == "CONNECT" {
		return resp.Status, ""
	}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return resp.Status, string(b)
}

func TestProxyForwards(t *testing.T) {
	g, in, _ := proxied(t, allow("good.example"), Options{})
	tr := &http.Transport{
		Proxy: func(*http.Request) (*url.URL, error) {
			return &url.URL{Scheme: "http", Host: "127.0.0.1:61080"}, nil
		},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return in.dial(), nil },
	}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	for i := range 3 { // one connection
		req, _ := http.NewRequest("POST", "http://Good.Example/a;b?q=1;2&%zz",
			strings.NewReader(strings.Repeat("x", 100_000)))
		req.Header.Set("Proxy-Authorization", "secret")
		req.Header.Set("X-Forwarded-For", "mine")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := `good host=Good.Example uri=/a;b?q=1;2&%zz body=100000 proxy="" xff="mine"`; string(b) != want {
			t.Errorf("%d: %s", i, b)
		}
	}
	resp, err := c.Get("http://evil.example/")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 403 || !strings.Contains(string(b),
		"evil.example:80 refused by the network policy of this machine: not on the list") {
		t.Errorf("%s: %s", resp.Status, b)
	}
	if got := g.Refused(); len(got) != 1 ||
		got[0] != (sandbox.Refusal{Host: "evil.example", Port: 80, Why: WhyUnlist, Count: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestProxyTunnels(t *testing.T) {
	_, in, _ := proxied(t, allow("good.example"), Options{})
	c := in.dial()
	defer c.Close()
	// What is sent with the request, before its answer, is not lost.
	go io.WriteString(c, "CONNECT good.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\nearly ")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	go io.WriteString(c, "late")
	b := make([]byte, 10)
	if _, err := io.ReadFull(r, b); err != nil || string(b) != "early late" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestProxyAttacks: what is asked for in another way than by the name on the list.
func TestProxyAttacks(t *testing.T) {
	for _, tt := range []struct {
		name, request, status string
		dials                 string // what is connected to
		refused               string
	}{
		{"a name not on the list", "CONNECT evil.example:443 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"evil.example:443 not on the list"},
		{"its address", "CONNECT 93.184.216.66:80 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"93.184.216.66:80 not on the list"},
		{"the address of a good one, never resolved", "CONNECT 93.184.216.34:443 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"93.184.216.34:443 not on the list"},
		{"the proxy itself", "CONNECT 127.0.0.1:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"127.0.0.1:61080 a loopback address"},
		{"the proxy by name", "CONNECT localhost:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"localhost:61080 not on the list"},
		{"loopback in decimal", "CONNECT 2130706433:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"2130706433:61080 not a host's name"},
		{"loopback in hex", "CONNECT 0x7f000001:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"0x7f000001:61080 not a host's name"},
		{"loopback in octal", "CONNECT 0177.0.0.1:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"0177.0.0.1:61080 not a host's name"},
		{"loopback in short", "CONNECT 127.1:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"127.1:61080 not a host's name"},
		{"loopback in IPv6", "CONNECT [::1]:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"::1:61080 a loopback address"},
		{"loopback, mapped", "CONNECT [::ffff:127.0.0.1]:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"::ffff:127.0.0.1:61080 a loopback address"},
		{"loopback, mapped in hex", "CONNECT [::ffff:7f00:1]:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"::ffff:7f00:1:61080 a loopback address"},
		{"loopback by NAT64", "CONNECT [64:ff9b::7f00:1]:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"64:ff9b::7f00:1:61080 a loopback address"},
		{"no address", "CONNECT 0.0.0.0:61080 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"0.0.0.0:61080 an unspecified address"},
		{"metadata", "GET http://169.254.169.254/latest/ HTTP/1.1\r\nHost: good.example\r\n\r\n", "403 Forbidden", "",
			"169.254.169.254:80 a metadata service"},
		{"with a zone", "CONNECT [fe80::1%25lo]:80 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"fe80::1%lo:80 a link-local address"},
		{"another Host", "GET http://good.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
			`200 OK good host=good.example`, "93.184.216.34:80", ""},
		{"another host, Host good", "GET http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n", "403 Forbidden",
			"", "evil.example:80 not on the list"},
		{"good as user", "GET http://good.example@evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
			"403 Forbidden", "", "evil.example:80 not on the list"},
		{"good as user with port", "GET http://good.example:80@evil.example/ HTTP/1.1\r\n\r\n", "400", "", ""},
		{"good before a backslash", "GET http://evil.example\\.good.example/ HTTP/1.1\r\nHost: a\r\n\r\n", "400", "",
			""},
		{"two Hosts", "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nHost: evil.example\r\n\r\n", "400",
			"", ""},
		{"two lengths", "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: " +
			"4\r\nContent-Length: 50\r\n\r\nabcd", "400", "", ""},
		{"two encodings", "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: " +
			"chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "501", "", ""},
		{"a space before the colon", "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length : " +
			"4\r\n\r\nabcd", "400", "", ""},
		{"a folded header", "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nX: a\r\n Host: " +
			"evil.example\r\nConnection: close\r\n\r\n", "", "", ""},
		{"a path only", "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n", "400 Bad Request", "", ""},
		{"https without a tunnel", "GET https://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
			"400 Bad Request", "", ""},
		{"another scheme", "GET ftp://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n", "400 Bad Request", "", ""},
		{"no port", "CONNECT good.example HTTP/1.1\r\n\r\n", "400 Bad Request", "", ""},
		{"port 0", "CONNECT good.example:0 HTTP/1.1\r\n\r\n", "400 Bad Request", "", ""},
		{"port 65979", "CONNECT good.example:65979 HTTP/1.1\r\n\r\n", "400 Bad Request", "", ""},
		{"a named port", "CONNECT good.example:https HTTP/1.1\r\n\r\n", "400", "", ""},
		{"a port with a sign", "CONNECT good.example:+443 HTTP/1.1\r\n\r\n", "400", "", ""},
		{"a name with a NUL", "CONNECT good.example\x00.evil.example:443 HTTP/1.1\r\n\r\n", "400", "", ""},
		{"a subdomain", "CONNECT a.good.example:443 HTTP/1.1\r\n\r\n", "403 Forbidden", "",
			"a.good.example:443 not on the list"},
		{"a dot at the end", "CONNECT GOOD.example.:80 HTTP/1.1\r\n\r\n", "200 Connection established",
			"93.184.216.34:80", ""},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", "", ""},
		{"a header without end", "GET http://good.example/ HTTP/1.1\r\nX: " + strings.Repeat("y", 1<<20), "431", "",
			""},
		{"no HTTP at all", "\x16\x03\x01\x00\x05hello\r\n\r\n", "400", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, in, web := proxied(t, allow("good.example"), Options{})
			status, body := raw(t, in, tt.request)
			if status, _, _ := strings.Cut(status+" "+body, "\n"); !strings.HasPrefix(status, tt.status) {
				t.Errorf("status %s", status)
			}
			got := strings.Join(web.dials(), " ")
			if tt.status == "" { // whatever it says, it is no way to another host
				if strings.Contains(got, ".66") || strings.Contains(body, "evil") {
					t.Errorf("reached %s: %s", got, body)
				}
				return
			}
			if got != tt.dials {
				t.Errorf("connected to %s", got)
			}
			var refused []string
			for _, r := range g.Refused() {
				refused = append(refused, fmt.Sprintf("%s:%d %s", r.Host, r.Port, r.Why))
			}
			if got := strings.Join(refused, ", "); got != tt.refused {
				t.Errorf("refused: %s", got)
			}
		})
	}
}

// TestRebinding: a name on the list whose addresses change, or are not all public.
func TestRebinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, in, web := proxied(t, allow("good.example", "*.public.example"), Options{})
		set := func(name string, addrs ...string) {
			web.mu.Lock()
			web.names[name] = addrs
			web.mu.Unlock()
		}
		get := func(name string) string {
			status, _ := raw(t, in, "GET http://"+name+"/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			return status
		}
		if s := get("good.example"); s != "200 OK" {
			t.Fatal(s)
		}
		set("good.example", "10.0.0.1")
		time.Sleep(2 * time.Minute) // neither what was answered nor a connection is kept so long
		if s := get("good.example"); s != "403 Forbidden" {
			t.Errorf("rebound: %s", s)
		}
		set("mixed.public.example", "10.0.0.1", "93.184.216.34", "::ffff:127.0.0.1")
		if s := get("mixed.public.example"); s != "200 OK" {
			t.Errorf("mixed: %s", s)
		}
		set("inner.public.example", "169.254.169.254")
		if s := get("inner.public.example"); s != "403 Forbidden" {
			t.Errorf("metadata: %s", s)
		}
		if got := web.dials(); !slices.Equal(got, []string{"93.184.216.34:80", "93.184.216.34:80"}) {
			t.Errorf("connected to %s", got)
		}
		if got := fmt.Sprint(g.Refused()); got != "[{good.example 80 resolves to a private address 1} "+
			"{inner.public.example 80 resolves to a metadata service 1}]" {
			t.Error(got)
		}
		// Named by its range too, it is let through.
		if err := g.Rewire(t.Context(), allow("good.example", "10.0.0.0/8")); err != nil {
			t.Fatal(err)
		}
		if s := get("good.example"); s != "200 OK" {
			t.Errorf("with the range on the list: %s", s)
		}
	})
}

func TestSilence(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "half a request": "GET http://good.ex",
		"half a greeting": "\x05\x02\x00"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, in, _ := proxied(t, allow("good.example"), Options{})
				c := in.dial()
				defer c.Close()
				go io.WriteString(c, text)
				start := time.Now()
				io.Copy(io.Discard, c)
				if d := time.Since(start); d != silence {
					t.Errorf("cut after %v", d)
				}
			})
		})
	}
}

func TestRewireCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, in, web := proxied(t, sandbox.Network{Mode: "public"}, Options{})
		web.hosts["93.184.216.66:443"] = echo
		tunnel := func(host string) (net.Conn, *bufio.Reader) {
			c := in.dial()
			go fmt.Fprintf(c, "CONNECT %s:443 HTTP/1.1\r\n\r\n", host)
			r := bufio.NewReader(c)
			if resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"}); err != nil ||
				resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
			return c, r
		}
		works := func(c io.Writer, r io.Reader) bool {
			b := make([]byte, 4)
			go io.WriteString(c, "ping")
			_, err := io.ReadFull(r, b)
			return err == nil
		}
		good, goodR := tunnel("good.example")
		evil, evilR := tunnel("evil.example")
		defer good.Close()
		defer evil.Close()
		if !works(good, goodR) || !works(evil, evilR) {
			t.Fatal("public")
		}
		if err := g.Rewire(t.Context(), allow("good.example")); err != nil {
			t.Fatal(err)
		}
		if !works(good, goodR) || works(evil, evilR) {
			t.Error("a list: good must live, evil must not")
		}
		// One that is being made when the policy changes.
		web.mu.Lock()
		web.wait = make(chan struct{})
		web.mu.Unlock()
		got := make(chan string)
		go func() {
			s, _ := raw(t, in, "CONNECT good.example:443 HTTP/1.1\r\n\r\n")
			got <- s
		}()
		synctest.Wait()
		if err := g.Rewire(t.Context(), sandbox.Network{}); err != nil {
			t.Fatal(err)
		}
		if s := <-got; s != "403 Forbidden" {
			t.Errorf("in the making: %s", s)
		}
		if works(good, goodR) {
			t.Error("none: nothing must live")
		}
		if err := g.Rewire(t.Context(), allow("http://good.example")); err == nil || g.Policy().String() != "none" {
			t.Errorf("a wrong policy: %v, %s", err, g.Policy())
		}
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, in, _ := proxied(t, allow("good.example"), Options{Conns: 2})
		var open []net.Conn
		for range 2 {
			c := in.dial()
			open = append(open, c)
			go io.WriteString(c, "CONNECT good.example:443 HTTP/1.1\r\n\r\n")
			b := make([]byte, 12)
			io.ReadFull(c, b)
			if string(b) != "HTTP/1.1 200" {
				t.Fatalf("%s", b)
			}
		}
		if s, _ := raw(t, in, "CONNECT good.example:443 HTTP/1.1\r\n\r\n"); s != "403 Forbidden" {
			t.Errorf("a third: %s", s)
		}
		if got := fmt.Sprint(g.Refused()); got != "[{good.example 443 too many connections 1}]" {
			t.Error(got)
		}
		open[0].Close()
		synctest.Wait()
		if s, _ := raw(t, in, "CONNECT good.example:443 HTTP/1.1\r\n\r\n"); s != "200 Connection established" {
			t.Errorf("after one has gone: %s", s)
		}
		open[1].Close()
	})
}

func TestClients(t *testing.T) { // more than may be are turned away, and nothing is kept of them
	synctest.Test(t, func(t *testing.T) {
		_, in, _ := proxied(t, allow("good.example"), Options{})
		var open []net.Conn
		for range maxClients {
			open = append(open, in.dial())
		}
		c := in.dial()
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("one too many")
		}
		for _, c := range open {
			c.Close()
		}
		synctest.Wait()
		if s, _ := raw(t, in, "CONNECT good.example:443 HTTP/1.1\r\n\r\n"); s != "200 Connection established" {
			t.Errorf("after they have gone: %s", s)
		}
	})
}

func TestSocks(t *testing.T) {
	ask := func(greeting, request string) func(*testing.T) string {
		return func(t *testing.T) string {
			_, in, _ := proxied(t, allow("good.example", "93.184.216.66", "2606:4700::1"), Options{})
			c := in.dial()
			defer c.Close()
			go io.WriteString(c, greeting+request)
			b, _ := io.ReadAll(io.LimitReader(c, 12))
			return fmt.Sprintf("%x", b[:min(len(b), 4)])
		}
	}
	name := func(cmd byte, host string, port string) string {
		return "\x05" + string([]byte{cmd, 0, 3, byte(len(host))}) + host + port
	}
	for _, tt := range []struct {
		what string
		ask  func(*testing.T) string
		want string // method, then the answer's first bytes
	}{
		{"by name", ask("\x05\x01\x00", name(1, "good.example", "\x01\xbb")), "05000500"},
		{"by name, with passwords offered", ask("\x05\x02\x02\x00", name(1, "good.example", "\x01\xbb")), "05000500"},
		{"by address", ask("\x05\x01\x00", "\x05\x01\x00\x01\x5d\xb8\xd8\x42\x00\x50"), "05000500"},
		{"by IPv6, nobody there", ask("\x05\x01\x00",
			"\x05\x01\x00\x04\x26\x06\x47\x00"+strings.Repeat("\x00", 11)+"\x01\x00\x50"), "05000505"},
		{"a name not on the list", ask("\x05\x01\x00", name(1, "evil.example", "\x01\xbb")), "05000502"},
		{"an address not on the list", ask("\x05\x01\x00", "\x05\x01\x00\x01\x5d\xb8\xd8\x22\x00\x50"), "05000502"},
		{"loopback", ask("\x05\x01\x00", "\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"), "05000502"},
		{"loopback, mapped", ask("\x05\x01\x00",
			"\x05\x01\x00\x04"+strings.Repeat("\x00", 10)+"\xff\xff\x7f\x00\x00\x01\x00\x50"), "05000502"},
		{"an address as a name", ask("\x05\x01\x00", name(1, "127.0.0.1", "\x01\xbb")), "05000502"},
		{"port 0", ask("\x05\x01\x00", name(1, "good.example", "\x00\x00")), "05000502"},
		{"BIND", ask("\x05\x01\x00", name(2, "good.example", "\x01\xbb")), "05000507"},
		{"UDP", ask("\x05\x01\x00", name(3, "good.example", "\x01\xbb")), "05000507"},
		{"passwords only", ask("\x05\x01\x02", ""), "05ff"},
		{"no such form of address", ask("\x05\x01\x00", "\x05\x01\x00\x09\x00"), "05000508"},
	} {
		if got := tt.ask(t); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}

func TestRefusalsAreBounded(t *testing.T) {
	var r refusals
	for i := range 10_000 {
		r.add(fmt.Sprintf("%d.example%s", i, strings.Repeat("x", 1000)), 443, WhyUnlist)
		r.add("again.example", 1, WhyUnlist)
	}
	got := r.list()
	if len(got) != maxRefusals+1 || got[1].Count != 10_000 || got[maxRefusals].Count != 10_000-maxRefusals+1 ||
		len(got[0].Host) > 255 {
		t.Errorf("%d; %+v; %+v", len(got), got[1], got[len(got)-1])
	}
}
