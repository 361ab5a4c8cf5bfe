package web

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/browsergym/browsers"
)

// SiteURL is where pages of a [Site] find it: the same for every episode, so that nothing that an
// agent sees changes from one to the next.
const SiteURL = "http://127.0.0.1/"

const siteAddress = "127.0.0.1:80"

// A Site serves files to the pages of one episode only. It listens on no port: contexts opened with
// [Site.AccessOptions] reach it at [SiteURL]. It lists no folders, and error pages show no paths.
type Site struct {
	srv      *http.Server
	listener *memListener
	done     chan struct{}
}

// Serve begins to serve files.
func Serve(files fs.FS) *Site {
	s := &Site{listener: &memListener{conns: make(chan net.Conn), done: make(chan struct{})}, done: make(chan struct{})}
	s.srv = &http.Server{Handler: handler(files), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		defer close(s.done)
		s.srv.Serve(s.listener)
	}()
	return s
}

// AccessOptions is for contexts that reach the site and nothing else.
func (s *Site) AccessOptions() browsers.AccessOptions { return browsers.AccessOptions{Dial: s.Dial} }

// Dial connects to the site at its address, and to no other.
func (s *Site) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	if address != siteAddress && address != "localhost:80" {
		return nil, browsers.ErrNotOwn
	}
	here, there := net.Pipe()
	select {
	case s.listener.conns <- there:
		return here, nil
	case <-s.listener.done:
	case <-ctx.Done():
	}
	here.Close()
	there.Close()
	return nil, errors.New("the site is closed")
}

// Close ends the site and all its connections.
func (s *Site) Close() error {
	err := s.srv.Close()
	<-s.done
	return err
}

// An memListener is a listener whose connections are made in this process.
type memListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (i *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-i.conns:
		return c, nil
	case <-i.done:
		return nil, net.ErrClosed
	}
}

func (i *memListener) Close() error {
	i.once.Do(func() { close(i.done) })
	return nil
}

func (i *memListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// mediaTypes are the media types of files. A page's characters are as it says itself, as if it came
// from a disk.
var mediaTypes = map[string]string{
	".html": "text/html", ".htm": "text/html", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript",
	".json": "application/json",
	".txt":  "text/plain; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg",
	".jpeg": "image/jpeg", ".gif": "image/gif",
	".webp": "image/webp", ".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf",
	".otf": "font/otf", ".pdf": "application/pdf",
	".xml": "application/xml", ".wasm": "application/wasm", ".mp3": "audio/mpeg", ".mp4": "video/mp4",
	".webm": "video/webm", ".csv": "text/csv; charset=utf-8",
}

// handler gives out regular files.
func handler(files fs.FS) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "only reading is possible", http.StatusMethodNotAllowed)
			return
		}
		name := strings.TrimPrefix(r.URL.Path, "/")
		if strings.HasSuffix(name, "/") || name == "" {
			name += "index.html"
		}
		if !fs.ValidPath(name) {
			http.NotFound(w, r)
			return
		}
		// before it is opened: a pipe would wait
		if info, err := fs.Stat(files, name); err != nil || !info.Mode().IsRegular() {
			http.NotFound(w, r)
			return
		}
		f, err := files.Open(name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer f.Close()
		kind := mediaTypes[strings.ToLower(path.Ext(name))]
		if kind == "" {
			kind = "application/octet-stream"
		}
		h.Set("Content-Type", kind)
		if s, ok := f.(io.ReadSeeker); ok {
			http.ServeContent(w, r, "", time.Time{}, s)
			return
		}
		io.Copy(w, f)
	})
}
