package browsers_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// What pages store is bounded for all origins of a context together, and costs the browser's other
// contexts nothing.
func TestStorage(t *testing.T) {
	p := newPool(t, browsers.Options{Storage: 32 << 20})
	pages := map[string]string{"/": "<title>here</title>"}
	url, host := site(t, pages)
	second, other := site(t, pages)
	a := p.For(browsers.AccessOptions{Hosts: []string{host, other}})
	_, page := open(t, a, cdp.ContextOptions{})
	_, neighbour := open(t, a, cdp.ContextOptions{})
	if err := neighbour.Goto(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	const stored = `.then(() => "all of it", e => e.name + " after " + n)`
	for name, script := range map[string]string{
		"caches": `(async () => { const c = await caches.open("x"); for (; n < 16; n++) await c.put("/" + n, new Response(new Uint8Array(4 << 20).fill(n))) })()`,
		"files":  `(async () => { const d = await navigator.storage.getDirectory(); for (; n < 16; n++) { const w = await (await d.getFileHandle("f" + n, {create: true})).createWritable(); await w.write(new Uint8Array(4 << 20).fill(n)); await w.close() } })()`,
	} {
		for _, at := range []string{url, second} {
			if err := page.Goto(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			if s := text(t, page, "(() => { let n = 0; return "+script+stored+" })()"); !strings.Contains(s,
				"QuotaExceededError") {
				t.Errorf("%s of %s: %s", name, at, s)
			}
		}
	}
	if s := text(t, neighbour, `caches.open("x").then(async c => { await c.put("/", new Response(new Uint8Array(4 << 20))); return "stored" })`); s != "stored" {
		t.Errorf("a neighbour of the same origin: %s", s)
	}
	if s := p.Stats(); s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}
