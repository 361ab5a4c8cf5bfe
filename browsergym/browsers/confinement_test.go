package browsers_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// status is what the kernel tells of a process.
func status(t *testing.T, pid string) map[string]string {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		m[k] = strings.TrimSpace(v)
	}
	return m
}

// What a browser itself could do, were it taken over.
func TestWhatABrowserIs(t *testing.T) {
	modes(t, func(t *testing.T, o browsers.Options) {
		p := newPool(t, o)
		c, page := open(t, p.For(browsers.AccessOptions{}), cdp.ContextOptions{})
		if err := page.Goto(t.Context(), "about:blank"); err != nil {
			t.Fatal(err)
		}
		path, _ := cdp.Find("")
		is := browsers.Isolated(path)
		pid := fmt.Sprint(c.Browser().PID())
		s := status(t, pid)
		if s["CapEff"] != "0000000000000000" || s["CapPrm"] != s["CapEff"] || s["CapAmb"] != s["CapEff"] {
			t.Errorf("capabilities %s %s %s", s["CapEff"], s["CapPrm"], s["CapAmb"])
		}
		users, _ := os.ReadFile("/proc/self/uid_map")
		if os.Geteuid() == 0 && len(strings.Fields(string(users))) == 3 && strings.Fields(string(users))[2] != "1" &&
			strings.HasPrefix(s["Uid"], "0\t") {
			t.Errorf("it is root: %s", s["Uid"])
		}
		renderers := 0
		for _, pid := range processTree([]string{pid}) {
			b, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if strings.Contains(string(b), "--type=renderer") {
				renderers++
				if seccomp := status(t, pid)["Seccomp"]; is.Sandbox && seccomp != "2" {
					t.Errorf("a page's process has seccomp %s", seccomp)
				}
			}
		}
		if renderers == 0 {
			t.Error("no process of a page was found")
		}
		if o.Plain {
			return
		}
		if s["NoNewPrivs"] != "1" {
			t.Error("it may gain privileges")
		}
		for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
			mine, _ := os.Readlink("/proc/self/ns/" + ns)
			its, err := os.Readlink("/proc/" + pid + "/ns/" + ns)
			if err != nil || mine == its {
				t.Errorf("namespace %s: %s %v", ns, its, err)
			}
		}
		root := "/proc/" + pid + "/root"
		for _, name := range []string{"/root", "/home", "/var/lib", "/etc/shadow", "/etc/ssh", "/sys", "/old", "/run",
			"/proc/sys/kernel/core_pattern/x", filepath.Dir(c.Browser().Profile()) + "/../owner.json"} {
			if _, err := os.Stat(root + name); err == nil {
				t.Errorf("it sees %s", name)
			}
		}
		if err := os.WriteFile(root+"/usr/evalrun-test", nil, 0o600); err == nil {
			os.Remove("/usr/evalrun-test")
			t.Error("/usr can be written")
		}
	})
}

// A page that is closed as it opens, since there are too many, downloads within the bounds, too:
// even what the browser does not tell of, as happens here in most runs.
func TestDownloadsOfPagesThatAreRefused(t *testing.T) {
	p := newPool(t, browsers.Options{})
	var busy atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			w.Header().Set("Content-Type", "text/html")
			return
		}
		busy.Add(1)
		defer busy.Add(-1)
		w.Header().Set("Content-Disposition", "attachment; filename=large")
		for block := make([]byte, 1<<16); r.Context().Err() == nil; {
			if _, err := w.Write(block); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}))
	defer s.Close()
	defer s.CloseClientConnections()
	c, page := open(t, p.For(browsers.AccessOptions{Hosts: []string{s.Listener.Addr().String()}}),
		cdp.ContextOptions{Downloads: "yes", DownloadLimit: 1 << 20, MaxPages: 1})
	if err := page.Goto(t.Context(), s.URL+"/"); err != nil {
		t.Fatal(err)
	}
	text(t, page, `for (let i = 0; i < 4; i++) window.open("/large" + i); ""`)
	until(t, "nobody downloads any more", func() bool { return c.Refused() == 4 && busy.Load() == 0 })
	for _, d := range c.Downloads() {
		if d.State != "canceled" {
			t.Errorf("%+v", d)
		}
	}
}

// Downloads are in a folder of the pool's, capped in size and number, and gone with the context.
func TestDownloads(t *testing.T) {
	p := newPool(t, browsers.Options{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			w.Header().Set("Content-Type", "text/html")
			return
		}
		w.Header().Set("Content-Disposition", "attachment; filename="+strings.Trim(r.URL.Path, "/"))
		n := 100
		if r.URL.Path == "/large" {
			n = 1 << 30
		}
		for block := []byte(strings.Repeat("x", 100)); n > 0; n -= len(block) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	host := s.Listener.Addr().String()
	c, page := open(t, p.For(browsers.AccessOptions{Hosts: []string{host}}),
		cdp.ContextOptions{Downloads: "yes", DownloadLimit: 1 << 20})
	if err := page.Goto(t.Context(), s.URL+"/"); err != nil {
		t.Fatal(err)
	}
	text(t, page, `for (const n of ["small", "large"]) { const f = document.createElement("iframe"); f.src = "/" + n; document.body.append(f) } ""`)
	states := func() map[string]cdp.Download {
		m := map[string]cdp.Download{}
		for _, d := range c.Downloads() {
			m[d.Name] = d
		}
		return m
	}
	until(t, "both have ended", func() bool {
		m := states()
		return m["small"].State == "completed" && m["large"].State == "canceled"
	})
	small := states()["small"]
	if b, err := os.ReadFile(small.Path); err != nil || len(b) != 100 {
		t.Errorf("%s: %d bytes, %v", small.Path, len(b), err)
	}
	if fi, err := os.Stat(states()["large"].Path); err == nil && fi.Size() > 64<<20 {
		t.Errorf("of the large one %d bytes are there", fi.Size())
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(small.Path); err == nil {
		t.Error("a download is still there")
	}
}

// A page gets the files of the allowed folders, and no others.
func TestUploads(t *testing.T) {
	dir, err := os.MkdirTemp("", "pool-shown-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "given.txt"), []byte("given"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	p := newPool(t, browsers.Options{Files: []string{dir}})
	url, host := site(t, map[string]string{
		"/": `<input type=file id=f onchange="f.files[0].text().then(s => document.title = f.files[0].name + ' ' + s)">`})
	_, page := open(t, p.For(browsers.AccessOptions{Hosts: []string{host}, Files: []string{dir}}),
		cdp.ContextOptions{Timeout: 20 * time.Second})
	if err := page.Goto(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	give := func(name string) error {
		return page.Upload(t.Context(), []string{name},
			func(ctx context.Context) error { return page.MouseClick(ctx, 40, 20, "left", false) })
	}
	for _, name := range []string{"/etc/passwd", filepath.Join(dir, "link.txt"),
		filepath.Join(dir, "../../etc/passwd")} {
		if err := give(name); err == nil || !strings.Contains(err.Error(), "ENOENT") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := give(filepath.Join(dir, "given.txt")); err != nil {
		t.Fatal(err)
	}
	until(t, "the page has read the file", func() bool { return text(t, page, "document.title") == "given.txt given" })
}

// A context whose wish names no folders gives its pages no file at all.
func TestUploadsWithoutFolders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret.txt")
	if err := os.WriteFile(file, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := newPool(t, browsers.Options{})
	url, host := site(t, map[string]string{
		"/": `<input type=file id=f onchange="f.files[0].text().then(s => document.title = f.files[0].name + ' ' + s)">`})
	for name, o := range map[string]browsers.AccessOptions{
		"nil":   {Hosts: []string{host}},
		"empty": {Hosts: []string{host}, Files: []string{}, Uploads: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			_, page := open(t, p.For(o), cdp.ContextOptions{Timeout: 20 * time.Second})
			if err := page.Goto(t.Context(), url); err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{file, "/etc/passwd", "/proc/self/environ"} {
				err := page.Upload(t.Context(), []string{f},
					func(ctx context.Context) error { return page.MouseClick(ctx, 40, 20, "left", false) })
				if err == nil || !strings.Contains(err.Error(), "ENOENT") {
					t.Errorf("%s was given to the page: %v", f, err)
				}
			}
		})
	}
}
