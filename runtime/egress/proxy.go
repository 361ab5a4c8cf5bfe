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
	maxClients  = 512 // of the proxy, with and without requests
	copyBuffer  = 32 << 10
	socksMarker = 5
)

// serveProxy serves HTTP and SOCKS5 on l, a port inside the sandbox. The first byte of a connection
// distinguishes them.
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
		Rewrite: func(r *httputil.ProxyRequest) { // unchanged, except for hop-by-hop headers
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			for _, k := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := r.In.Header[k]; ok {
					r.Out.Header[k] = v
				}
			}
		},
		ErrorLog:   log.New(io.Discard, "", 0),
		BufferPool: bufferPool{},
		// Flush at once, for streaming responses.
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

// A proxy is the proxy of a gate.
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

// A client is a connection from inside, whose first byte may have been read.
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

// A webListener passes the HTTP clients to a server.
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

// ServeHTTP serves one request. Go's server has already refused requests that two parsers could
// read differently, and has replaced the Host header by the host of an absolute URI: so the same
// host is checked, dialed and sent on.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The server's own goroutines need no waiting; those that serve a request do.
	done := make(chan struct{})
	defer close(done)
	if !p.g.spawn(func() { <-done }) {
		return
	}
	// A client that has closed its side may still want the response, but one that is gone must not
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
	relay(&bufferedConn{Conn: in, r: buf.Reader}, out)
}

// bufferedConn is a connection of which some bytes were read ahead.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (e *bufferedConn) Read(b []byte) (int, error) {
	if e.r.Buffered() > 0 {
		return e.r.Read(b)
	}
	return e.Conn.Read(b)
}

func (e *bufferedConn) CloseWrite() error { return closeWrite(e.Conn) }

// refuse answers a request whose host could not be reached.
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

// splitPort splits host:port strictly: the port is a decimal number.
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

// relay copies in both directions until both have ended, and closes both connections.
func relay(in net.Conn, out *tracked) {
	defer in.Close()
	defer out.Close()
	out.whenCut(func() { in.Close() })
	exchange(in, out)
}

// exchange copies in both directions until both have ended.
func exchange(in, out net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		copyOneWay(out, in)
	}()
	copyOneWay(in, out)
	<-done
}

// copyOneWay copies in one direction. It passes on a normal end; an error ends both directions.
func copyOneWay(dst, src net.Conn) {
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
