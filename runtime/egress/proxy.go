package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"sync"
	"time"
)

const (
	silence     = 30 * time.Second // before a request is whole
	idle        = 60 * time.Second // between two requests
	maxHeader   = 64 << 10
	maxClients  = 512 // of the proxy, whether they ask for something or not
	copyBuffer  = 32 << 10
	socksMarker = 5
)

// serveProxy serves HTTP and SOCKS5 on l, which is a port inside the machine: the first byte tells
// which.
func (g *Gate) serveProxy(l net.Listener) {
	p := &proxy{g: g, web: make(chan net.Conn), open: map[net.Conn]struct{}{}}
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, port, err := splitPort(addr, "")
			if err != nil {
				return nil, err
			}
			c, err := g.dial(ctx, host, port)
			if err != nil {
				return nil, err
			}
			return c, nil
		},
		DisableCompression: true, MaxIdleConns: 32, MaxIdleConnsPerHost: 4, IdleConnTimeout: idle,
		MaxResponseHeaderBytes: maxHeader * 4,
		ExpectContinueTimeout:  time.Second,
	}
	p.forward = &httputil.ReverseProxy{
		Transport: tr,
		Rewrite: func(r *httputil.ProxyRequest) { // as it came, less what belongs to one hop
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			for _, k := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := r.In.Header[k]; ok {
					r.Out.Header[k] = v
				}
			}
		},
		ErrorLog:   log.New(io.Discard, "", 0),
		BufferPool: bufferPool{},
		// At once: what is streamed is streamed to somebody who waits.
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
	}
	srv := &http.Server{
		Handler: p, ReadHeaderTimeout: silence, IdleTimeout: idle, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	g.ends = append(g.ends, func() {
		l.Close()
		srv.Close()
		tr.CloseIdleConnections()
		p.close()
	})
	g.wg.Go(func() { srv.Serve(webListener{p, l.Addr()}) })
	g.wg.Go(func() { p.accept(l) })
}

// A proxy is way 1 of a gate.
type proxy struct {
	g       *Gate
	web     chan net.Conn
	forward *httputil.ReverseProxy

	mu     sync.Mutex
	open   map[net.Conn]struct{} // the clients
	closed bool
}

func (p *proxy) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		k := &client{Conn: c, p: p}
		p.mu.Lock()
		ok := !p.closed && len(p.open) < maxClients
		if ok {
			p.open[k] = struct{}{}
		}
		p.mu.Unlock()
		if !ok || !p.g.spawn(func() { p.sniff(k) }) {
			k.Close()
		}
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	open := p.open
	p.open = nil
	p.mu.Unlock()
	for c := range open {
		c.Close()
	}
}

// client is a connection from inside; its first byte may have been read already.
type client struct {
	net.Conn
	p     *proxy
	first []byte
}

func (c *client) Read(b []byte) (int, error) {
	if len(c.first) > 0 && len(b) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

func (c *client) Close() error {
	c.p.mu.Lock()
	delete(c.p.open, c)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

func (c *client) CloseWrite() error { return closeWrite(c.Conn) }

func (p *proxy) sniff(c *client) {
	var b [1]byte
	c.SetDeadline(time.Now().Add(silence))
	if _, err := io.ReadFull(c.Conn, b[:]); err != nil {
		c.Close()
		return
	}
	if b[0] == socksMarker {
		p.socks(c)
		return
	}
	c.SetDeadline(time.Time{})
	c.first = b[:]
	select {
	case p.web <- c:
	case <-p.g.ctx.Done():
		c.Close()
	}
}

// webListener hands the HTTP clients to a server.
type webListener struct {
	p    *proxy
	addr net.Addr
}

func (l webListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.p.web:
		return c, nil
	case <-l.p.g.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (l webListener) Close() error   { return nil }
func (l webListener) Addr() net.Addr { return l.addr }

// ServeHTTP serves one request. Go's server has already refused what two parsers could read in two
// ways, and has put the host of an absolute URI in the place of the header Host: what is judged,
// what is dialled and what is sent on are the same.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The server's own goroutines are not ours to wait for; those that run a request are.
	done := make(chan struct{})
	defer close(done)
	if !p.g.spawn(func() { <-done }) {
		return
	}
	// A client that has ended its side may still want the answer, and one that has gone may not
	// hold its place for long.
	ctx, cancel := context.WithCancel(p.g.ctx)
	defer cancel()
	defer context.AfterFunc(r.Context(), func() { time.AfterFunc(silence, cancel) })()
	r = r.WithContext(ctx)
	switch {
	case r.Method == http.MethodConnect:
		p.tunnel(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		if _, _, err := splitPort(r.URL.Host, "80"); err != nil {
			http.Error(w, "evalrun: the request names no host and port: "+err.Error(), http.StatusBadRequest)
			return
		}
		r.Host = r.URL.Host
		p.forward.ServeHTTP(w, r)
	case r.URL.IsAbs():
		http.Error(w, "evalrun: this proxy forwards http: requests only; use CONNECT for others", http.StatusBadRequest)
	default:
		http.Error(w, "evalrun: this is a proxy; ask for an absolute URI, or use CONNECT", http.StatusBadRequest)
	}
}

func (p *proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	host, port, err := splitPort(r.Host, "")
	if err != nil {
		http.Error(w, "evalrun: CONNECT wants host:port: "+err.Error(), http.StatusBadRequest)
		return
	}
	out, err := p.g.dial(r.Context(), host, port)
	if err != nil {
		refuse(w, err)
		return
	}
	defer out.Close()
	h, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "evalrun: no tunnel over this connection", http.StatusInternalServerError)
		return
	}
	in, buf, err := h.Hijack()
	if err != nil {
		return
	}
	defer in.Close()
	in.SetDeadline(time.Time{})
	if _, err := io.WriteString(in, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	relay(&early{Conn: in, r: buf.Reader}, out)
}

// early is a connection of which some was read ahead.
type early struct {
	net.Conn
	r *bufio.Reader
}

func (e *early) Read(b []byte) (int, error) {
	if e.r.Buffered() > 0 {
		return e.r.Read(b)
	}
	return e.Conn.Read(b)
}

func (e *early) CloseWrite() error { return closeWrite(e.Conn) }

// refuse answers a request whose host could not be had.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusBadGateway
	var ne net.Error
	switch {
	case errors.As(err, new(*Denied)):
		code = http.StatusForbidden
	case errors.As(err, &ne) && ne.Timeout():
		code = http.StatusGatewayTimeout
	}
	http.Error(w, "evalrun: "+err.Error(), code)
}

// splitPort takes host:port apart, strictly: the port is a decimal number.
func splitPort(s, standard string) (string, uint16, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil && standard != "" {
		host, port, err = net.SplitHostPort(s + ":" + standard)
	}
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" {
		return "", 0, &net.AddrError{Err: "not a host and a port", Addr: s}
	}
	return host, uint16(n), nil
}

// relay copies both ways until both have ended, and closes both.
func relay(in net.Conn, out *tracked) {
	defer in.Close()
	defer out.Close()
	out.whenCut(func() { in.Close() })
	exchange(in, out)
}

// exchange copies both ways until both have ended.
func exchange(in, out net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		half(out, in)
	}()
	half(in, out)
	<-done
}

// half copies one way. A proper end is passed on; any other ends both ways.
func half(dst, src net.Conn) {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	_, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, *b)
	if err != nil || closeWrite(dst) != nil {
		dst.Close()
		src.Close()
	}
}

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

var buffers = sync.Pool{New: func() any { b := make([]byte, copyBuffer); return &b }}

type bufferPool struct{}

func (bufferPool) Get() []byte  { return *buffers.Get().(*[]byte) }
func (bufferPool) Put(b []byte) { buffers.Put(&b) }
