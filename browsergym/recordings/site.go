package recordings

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Site serves the recordings' pages as their README says. It uses the recorded ports if they are
// free, because the addresses shown on pages take up space.
type Site struct {
	dir          string
	first, other string // ports
	miniwob      string // address of MiniWoB++'s folder; "" if it does not exist
	servers      []*http.Server
}

// recordedMiniWoB is the folder's address in the recordings.
const recordedMiniWoB = "file:///tmp/miniwob/html/"

// NewSite starts a site. miniwob is the folder html of MiniWoB++, or "".
func NewSite(dir, miniwob string) (*Site, error) {
	s := &Site{dir: dir}
	for _, at := range []struct {
		port string
		to   *string
	}{{"8931", &s.first}, {"8932", &s.other}} {
		l, err := net.Listen("tcp", "127.0.0.1:"+at.port)
		if err != nil {
			l, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err != nil {
			s.Close()
			return nil, err
		}
		srv := &http.Server{Handler: s}
		go srv.Serve(l)
		s.servers = append(s.servers, srv)
		*at.to = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	if miniwob != "" {
		abs, err := filepath.Abs(miniwob)
		if err != nil {
			return nil, err
		}
		s.miniwob = "file://" + abs + "/"
	}
	return s, nil
}

// Close closes the site.
func (s *Site) Close() {
	for _, srv := range s.servers {
		srv.Close()
	}
}

// Ours replaces recorded addresses by those of this site.
func (s *Site) Ours(text string) string {
	return strings.NewReplacer(":8931", ":"+s.first, ":8932", ":"+s.other, recordedMiniWoB, s.miniwob).Replace(text)
}

// Theirs is the inverse of Ours. It also removes the names of blobs, which are random.
func (s *Site) Theirs(text string) string {
	pairs := []string{":" + s.first, ":8931", ":" + s.other, ":8932"}
	if s.miniwob != "" {
		pairs = append(pairs, s.miniwob, recordedMiniWoB)
	}
	return blob.ReplaceAllString(strings.NewReplacer(pairs...).Replace(text), "blob:")
}

var blob = regexp.MustCompile(`blob:[^'" ]*`)

// ServeHTTP serves a page.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	name := path.Base(r.URL.Path)
	switch {
	case len(parts) >= 3 && parts[0] == "slow":
		ms, _ := strconv.Atoi(parts[1])
		select {
		case <-time.After(time.Duration(ms) * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	case len(parts) >= 2 && parts[0] == "redirect":
		http.Redirect(w, r, "/"+name, http.StatusFound)
		return
	case len(parts) >= 2 && parts[0] == "status":
		code, _ := strconv.Atoi(parts[1])
		h.Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(code)
		if code != http.StatusNoContent {
			fmt.Fprintf(w, "<title>status</title>status %d", code)
		}
		return
	case len(parts) >= 2 && parts[0] == "download":
		h.Set("Content-Type", "text/plain")
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
		io.WriteString(w, "downloaded text\n")
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	raw, err := os.ReadFile(filepath.Join(s.dir, "pages", name))
	if err != nil {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "<title>404</title>not found")
		return
	}
	io.WriteString(w, s.Ours(string(raw)))
}

// UploadFolder contains the files of recorded uploads.
const UploadFolder = "/tmp/golden-upload"

// Uploads creates the files in [UploadFolder].
func Uploads() error {
	if err := os.MkdirAll(UploadFolder, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{"a.txt": "file a\n", "b.txt": "file b, longer\n"} {
		if err := os.WriteFile(filepath.Join(UploadFolder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
