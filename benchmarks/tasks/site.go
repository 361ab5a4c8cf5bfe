package tasks

import (
	_ "embed"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path"
	"strings"
	"time"
)

// core is MiniWoB++'s page contract for pages of one's own; each site has it at corePath.
//
//go:embed core.js
var core []byte

const corePath = "evalrun/core.js"

// A site is a task's pages, served to its own episode on a port of its own of the loopback, for reading only.
type site struct {
	base   string // "http://127.0.0.1:40123/"
	host   string // "127.0.0.1:40123"
	server *http.Server
	done   chan struct{}
}

// serve serves items until Close.
func serve(items Site, beside fs.FS) (*site, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	host := l.Addr().String()
	s := &site{base: "http://" + host + "/", host: host, done: make(chan struct{}), server: &http.Server{
		Handler: &pages{items: items, beside: beside, host: host}, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
	}}
	go func() {
		defer close(s.done)
		s.server.Serve(l)
	}()
	return s, nil
}

func (s *site) Close() error {
	err := s.server.Close()
	<-s.done
	return err
}

// pages answer requests. What a page asks for may be hostile, and so may be what lies in a folder: nothing but plain files of the site is opened,
// and no link is followed.
type pages struct {
	items  Site
	beside fs.FS
	host   string
}

// types by the name's ending; the host's own table is not asked, so that a site is the same everywhere.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".mjs": "text/javascript; charset=utf-8", ".json": "application/json", ".txt": "text/plain; charset=utf-8", ".csv": "text/csv; charset=utf-8",
	".xml": "text/xml; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
	".webp": "image/webp", ".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf", ".pdf": "application/pdf",
	".mp3": "audio/mpeg", ".mp4": "video/mp4", ".webm": "video/webm", ".wasm": "application/wasm",
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Host != p.host { // a name that somebody else's DNS leads here
		http.Error(w, "not the site that was asked for", http.StatusMisdirectedRequest)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "this site is for reading only", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	if name == corePath {
		h.Set("Content-Type", types[".js"])
		w.Write(core)
		return
	}
	if name == "" || strings.HasSuffix(r.URL.Path, "/") {
		name = path.Join(name, "index.html")
	}
	f, err := p.items.open(name, p.beside)
	if err != nil {
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	defer f.Close()
	kind, ok := types[strings.ToLower(path.Ext(name))]
	if !ok {
		kind = "application/octet-stream"
	}
	h.Set("Content-Type", kind)
	http.ServeContent(w, r, "", time.Time{}, f)
}

// open opens a plain file of the site: an item itself, or what lies below one that is a folder.
func (s Site) open(name string, beside fs.FS) (seekCloser, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	for at := name; ; at = path.Dir(at) {
		if i, ok := s[at]; ok {
			rest := strings.TrimPrefix(strings.TrimPrefix(name, at), "/")
			if at == "." {
				rest = name
			}
			switch {
			case i.From != "":
				return openPlain(beside, path.Join(path.Clean(i.From), rest))
			case rest != "":
				return nil, fs.ErrNotExist
			case i.Base64 != nil:
				return plain{strings.NewReader(string(i.Base64))}, nil
			}
			return plain{strings.NewReader(i.Text)}, nil
		}
		if at == "." {
			return nil, fs.ErrNotExist
		}
	}
}

type seekCloser interface {
	io.ReadSeeker
	io.Closer
}

type plain struct{ io.ReadSeeker }

func (plain) Close() error { return nil }

// openPlain opens a file that neither is a link nor lies behind one.
func openPlain(fsys fs.FS, name string) (seekCloser, error) {
	if fsys == nil {
		return nil, errors.New("these tasks have no folder of their own")
	}
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	for i := range name + "/" {
		if i < len(name) && name[i] != '/' {
			continue
		}
		info, err := fs.Lstat(fsys, name[:i])
		switch {
		case err != nil:
			return nil, err
		case i < len(name) && !info.IsDir(), i == len(name) && !info.Mode().IsRegular():
			return nil, fs.ErrNotExist
		}
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	if s, ok := f.(seekCloser); ok {
		return s, nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes))
	return plain{strings.NewReader(string(b))}, err
}

// linkless says which link there is at or below a folder, as an error.
func linkless(fsys fs.FS, name string) error {
	return fs.WalkDir(fsys, name, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Type()&fs.ModeSymlink != 0 {
			err = errors.New(p + " is a link, and links are not served")
		}
		return err
	})
}
