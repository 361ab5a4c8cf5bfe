package browsers_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

func needBrowser(t testing.TB) {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_BROWSER") == "" {
		t.Skip("set EVALRUN_TEST_BROWSER=1 for tests with a real browser")
	}
}

// newPool is a pool whose folders are all seen to be gone in the end.
func newPool(t testing.TB, o browsers.Options) *browsers.Pool {
	t.Helper()
	needBrowser(t)
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "pool-test-") // not a test's own, whose parent is closed to other users
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(dir) })
		o.Dir = dir
	}
	if o.Say == nil {
		o.Say = func(s string) { t.Log("pool: " + s) }
	}
	p := browsers.New(o)
	t.Cleanup(func() {
		pids := processTree(users(o.Dir))
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		for _, pid := range pids {
			state, err := os.ReadFile("/proc/" + pid + "/status")
			// Without namespaces orphans are process 1's to take leave of, which may not care.
			if orphan := strings.Contains(string(state), "(zombie)") &&
				strings.Contains(string(state), "\nPPid:\t1\n"); err == nil &&
				!(orphan && !caged(o) && os.Getpid() != 1) {
				t.Errorf("a process is left: %.300s", state)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(o.Dir, "*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})
	return p
}

// caged reports whether browsers have namespaces of their own.
func caged(o browsers.Options) bool {
	path, err := cdp.Find(o.Path)
	return err == nil && !o.Plain && browsers.Isolated(path).Namespaces
}

// site serves what is given by path.
func site(t testing.TB, pages map[string]string) (url, host string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if strings.HasSuffix(r.URL.Path, ".js") {
			w.Header().Set("Content-Type", "text/javascript")
		}
		io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL, s.Listener.Addr().String()
}

func open(t testing.TB, a *browsers.Access, o cdp.ContextOptions) (*cdp.Context, *cdp.Page) {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = time.Minute // a machine may have much else to do
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := a.NewContext(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	p, err := c.NewPage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c, p
}

func text(t testing.TB, p *cdp.Page, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var s string
	if err := p.Evaluate(ctx, script, &s); err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return s
}

func TestContextsShareABrowser(t *testing.T) {
	p := newPool(t, browsers.Options{PerBrowser: 2})
	url, host := site(t, map[string]string{"/": "<title>here</title><p>hello"})
	for range 3 {
		_, page := open(t, p.For(browsers.AccessOptions{Hosts: []string{host}}), cdp.ContextOptions{})
		if err := page.Goto(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		if s := text(t, page, "document.title"); s != "here" {
			t.Errorf("title %q", s)
		}
	}
	if s := p.Stats(); s.Browsers != 2 || s.Contexts != 3 || s.Started != 2 || s.Opened != 3 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAdmission(t *testing.T) {
	p := newPool(t, browsers.Options{Contexts: 1})
	a := p.For(browsers.AccessOptions{})
	first, _ := open(t, a, cdp.ContextOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.NewContext(ctx, cdp.ContextOptions{}); !errors.Is(err, context.DeadlineExceeded) ||
		browsers.Infra(err) {
		t.Errorf("a second context: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		c, err := a.NewContext(t.Context(), cdp.ContextOptions{})
		if err == nil {
			c.Close(t.Context())
		}
		got <- err
	}()
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("after there was room: %v", err)
	}
}

// A navigation that fails is told in the browser's own words, not in those of a browser with a
// proxy.
func TestErrorsOfNavigation(t *testing.T) {
	p := newPool(t, browsers.Options{Resolver: names{"private.test": "10.0.0.1"}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody is there
	a := p.For(browsers.AccessOptions{Network: sandbox.Network{Mode: "public"},
		Hosts: []string{l.Addr().String(), "dialled.test:80"},
		Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, syscall.ECONNRESET
		}})
	_, page := open(t, a, cdp.ContextOptions{Timeout: 30 * time.Second})
	for url, want := range map[string]string{
		"http://nobody.test/":                  "net::ERR_NAME_NOT_RESOLVED",
		"https://nobody.test/":                 "net::ERR_NAME_NOT_RESOLVED",
		"http://private.test/":                 "net::ERR_BLOCKED_BY_ADMINISTRATOR",
		"http://" + l.Addr().String() + "/x?y": "net::ERR_CONNECTION_REFUSED",
		"http://localhost:8081/":               "net::ERR_CONNECTION_RESET",
	} {
		if err := page.Goto(t.Context(), url); err == nil || !strings.Contains(err.Error(), want+" at "+url+"\n") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Services of a machine's own are reached by its loopback.
func TestDial(t *testing.T) {
	p := newPool(t, browsers.Options{})
	_, host := site(t, map[string]string{"/": "<title>inside</title>"})
	var asked atomic.Value
	a := p.For(browsers.AccessOptions{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		asked.Store(address)
		return (&net.Dialer{}).DialContext(ctx, network, host)
	}})
	_, page := open(t, a, cdp.ContextOptions{})
	if err := page.Goto(t.Context(), "http://localhost:8080/"); err != nil {
		t.Fatal(err)
	}
	if s := text(t, page, "document.title"); s != "inside" || asked.Load() != "localhost:8080" {
		t.Errorf("title %q of %v", s, asked.Load())
	}
}

// What is not at a place of the context's own is reached where its policy names it, and not
// otherwise.
func TestDialElsewhere(t *testing.T) {
	p := newPool(t, browsers.Options{})
	_, host := site(t, map[string]string{"/": "<title>beside</title>"})
	elsewhere := func(context.Context, string, string) (net.Conn, error) { return nil, browsers.ErrNotOwn }
	for allow, reached := range map[string]bool{"127.0.0.1": true, "192.0.2.1": false} {
		a := p.For(browsers.AccessOptions{Dial: elsewhere,
			Network: sandbox.Network{Mode: "allow", Allow: []string{allow}}})
		_, page := open(t, a, cdp.ContextOptions{})
		if err := page.Goto(t.Context(), "http://"+host+"/"); (err == nil) != reached {
			t.Errorf("with %s allowed: %v", allow, err)
		}
	}
}
