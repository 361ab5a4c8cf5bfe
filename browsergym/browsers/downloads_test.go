package browsers_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// ways are scripts that download again and again, and never by an address that a server would have
// to answer.
var ways = map[string]string{
	"blobs":            `setInterval(() => save(URL.createObjectURL(big())), 50)`,
	"data addresses":   `setInterval(() => save("data:application/octet-stream," + "x".repeat(1 << 20)), 50)`,
	"many small ones":  `setInterval(() => { for (let i = 0; i < 200; i++) save(URL.createObjectURL(new Blob(["x"])), "f" + i) }, 100)`,
	"frames that go":   `setInterval(() => { const f = document.createElement("iframe"); document.body.append(f); f.src = URL.createObjectURL(new Blob([big()], {type: "application/octet-stream"})); setTimeout(() => f.remove(), 100) }, 50)`,
	"a frame's frame":  `setInterval(() => { const f = document.createElement("iframe"); f.srcdoc = "<iframe src='" + URL.createObjectURL(new Blob([big()], {type: "application/octet-stream"})) + "'></iframe>"; document.body.append(f); setTimeout(() => f.remove(), 100) }, 50)`,
	"popups":           `setInterval(() => { const w = open(URL.createObjectURL(new Blob([big()], {type: "application/octet-stream"}))); setTimeout(() => w && w.close(), 50) }, 50)`,
	"a worker's blob":  `const w = new Worker(URL.createObjectURL(new Blob(["setInterval(() => postMessage(URL.createObjectURL(new Blob([new Uint8Array(1 << 20)]))), 50)"]))); w.onmessage = e => save(e.data)`,
	"a service worker": `navigator.serviceWorker.register("/sw.js").then(() => navigator.serviceWorker.ready).then(() => setInterval(() => { const f = document.createElement("iframe"); f.src = "/endless" + Math.random(); document.body.append(f) }, 200))`,
	"prints":           `setInterval(print, 50)`,
	"file pickers":     `onclick = () => showSaveFilePicker().then(async h => { const w = await h.createWritable(); for (;;) await w.write(big()) })`,
}

// Downloads stay within their bounds whatever they come from, and are gone with their context.
func TestWaysToDownload(t *testing.T) {
	if testing.Short() {
		t.Skip("each way is watched for seconds")
	}
	const one, all = 2 << 20, 4 << 20
	dir, err := os.MkdirTemp("", "pool-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := newPool(t, browsers.Options{Dir: dir})
	url, host := site(t, map[string]string{
		"/": `<title>here</title><body><script>
			const big = () => new Blob([new Uint8Array(1 << 20)]);
			const save = (href, name) => Object.assign(document.createElement("a"), {href, download: name || "file"}).click()</script>`,
		"/sw.js": `oninstall = () => skipWaiting(); onactivate = e => e.waitUntil(clients.claim());
			onfetch = e => { if (e.request.url.includes("endless")) e.respondWith(new Response(new ReadableStream({pull(c) { c.enqueue(new Uint8Array(1 << 16)) }}), {headers: {"Content-Type": "application/octet-stream", "Content-Disposition": "attachment"}})) }`,
	})
	a := p.For(browsers.AccessOptions{Hosts: []string{host}})
	for name, script := range ways {
		t.Run(name, func(t *testing.T) {
			c, page := open(t, a, cdp.ContextOptions{Downloads: "yes", DownloadLimit: one, DownloadTotal: all,
				MaxPages: 5})
			if err := page.Goto(t.Context(), url); err != nil {
				t.Fatal(err)
			}
			text(t, page, "setTimeout(() => { "+script+" }); ''")
			if err := page.MouseClick(t.Context(), 5, 5, "left", false); err != nil {
				t.Error(err)
			}
			most := int64(0)
			for range 15 {
				most = max(most, taken(dir))
				time.Sleep(100 * time.Millisecond)
			}
			if most > 512<<20 { // what a service worker makes up comes faster than the browser tells of it
				t.Errorf("%d MiB at once", most>>20)
			}
			begun := time.Now()
			if err := c.Close(t.Context()); err != nil || time.Since(begun) > 30*time.Second {
				t.Errorf("closing, for %v: %v", time.Since(begun), err)
			}
			time.Sleep(500 * time.Millisecond)
			if n := taken(dir); n > 0 {
				t.Errorf("%d bytes are left", n)
			}
		})
	}
	if s := p.Stats(); s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// taken is what lies in the downloads of a pool's browsers.
func taken(pool string) (n int64) {
	found, _ := filepath.Glob(filepath.Join(pool, "evalrun-browser-*", "files"))
	for _, dir := range found {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.Contains(path, "/taken/") {
				if fi, err := d.Info(); err == nil {
					n += fi.Size()
				}
			}
			return nil
		})
	}
	return n
}
