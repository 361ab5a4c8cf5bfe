package tasks

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// A site gives out its own plain files and nothing else, whatever is asked and whatever lies in its
// folder.
func TestSite(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"tasks.yaml": "the answers", "shop/index.html": "start", "shop/a b.html": "spaced",
		"shop/deep/index.html": "deep", "shop/deep/x.css": "p{}", "shop/data": "raw", "other/secret": "no",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"shop/answers": "../tasks.yaml", "shop/passwd": "/etc/passwd",
		"shop/up": "..", "shop/same": "index.html", "shop/root": "/"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	fsys, err := fsutil.FS(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := web.Serve(pages{Site{".": {From: "shop"}, "inline.html": {Text: "<p>hier"}, "pic.png": {Base64: []byte{1, 2}},
		"lib/one.js": {From: "shop/deep/x.css"}, "sub": {From: "shop/deep"}}, fsys})
	defer s.Close()
	ask := func(first, host string) (int, http.Header, string) {
		c, err := s.Dial(t.Context(), "tcp", "127.0.0.1:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", first, host)
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		return r.StatusCode, r.Header, string(b)
	}
	for _, c := range []struct {
		first string
		code  int
		body  string
	}{
		{"GET /", 200, "start"},
		{"GET /index.html?x=1", 200, "start"},
		{"GET /a%20b.html", 200, "spaced"},
		{"GET /deep/", 200, "deep"},
		{"GET /deep/x.css", 200, "p{}"},
		{"GET /inline.html", 200, "\ufeff<p>hier"},
		{"GET /pic.png", 200, "\x01\x02"},
		{"GET /lib/one.js", 200, "p{}"},
		{"GET /sub/", 200, "deep"},
		{"GET /evalrun/core.js", 200, string(core)},
		{"HEAD /", 200, ""},

		// a folder is no file, and is not listed
		{"GET /deep", 404, ""}, {"GET /deep/../index.html", 404, ""}, {"GET /missing", 404, ""},
		{"GET /inline.html/x", 404, ""},
		{"GET /lib/", 404, ""},
		{"GET /lib/one.js/..%2fx", 404, ""},
		{"GET /../tasks.yaml", 404, ""},
		{"GET /..%2ftasks.yaml", 404, ""},
		{"GET /%2e%2e/tasks.yaml", 404, ""},
		{"GET //etc/passwd", 404, ""},
		{"GET /sub/../../tasks.yaml", 404, ""},
		{"GET /answers", 404, ""},
		{"GET /passwd", 404, ""},
		{"GET /up/tasks.yaml", 404, ""},
		{"GET /up/other/secret", 404, ""},
		{"GET /root/etc/passwd", 404, ""},
		{"GET /same", 404, ""},
		{"GET /data%00.html", 404, ""},
		{"GET /tasks.yaml", 404, ""},
		{"POST /", 405, ""},
		{"PUT /new.html", 405, ""},
		{"DELETE /index.html", 405, ""},
	} {
		code, h, body := ask(c.first, "127.0.0.1")
		if code != c.code || code == 200 && body != c.body || strings.Contains(body, "the answers") ||
			h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %q %v", c.first, code, body, h)
		}
	}
	if err := linkless(fsys, "shop"); err == nil || !strings.Contains(err.Error(), "links are not served") {
		t.Errorf("a folder with links: %v", err)
	}
}

func TestFillIn(t *testing.T) {
	o := &Oracle{Take: map[string]string{"who": `(\w+)`}}
	for _, c := range []struct{ in, want, err string }{
		{`click(<button "OK">)`, `click('1')`, ""},
		{`click(<button "the <who>">)`, `click('1')`, ""},
		{`click(<button "Buy" after "row 'x' \d+">)`, `click('1')`, ""},
		{`fill(<textbox "a \"b\"">, <who>)`, `fill('1', 'x')`, ""},
		{`fill("3", 'it is <who>, a < b <br>')`, `fill("3", 'it is x, a < b <br>')`, ""},
		{`fill("3", "\"<who>\"")`, `fill("3", "\"x\"")`, ""},
		{`click(<button>)`, "", "<button> is not among oracle.take"},
		{`click(<button OK>)`, "", "want a value"},
		{`click(<button "Buy" after "(">)`, "", "missing closing"},
		{`fill("3", <what>)`, "", "<what> is not among oracle.take"},
	} {
		got, err := fillIn(c.in, unseen{o})
		if got != c.want && c.err == "" || (err == nil) != (c.err == "") || err != nil &&
			!strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v", c.in, got, err)
		}
	}
	p := o.Guide("")
	p.known["who"] = `a"b'c\d` + "\n"
	if got, err := fillIn(`f(<who>, "<who>", '<who>')`, p); err != nil ||
		got != `f('a"b\'c\\d\n', "a\"b'c\\d\n", 'a"b\'c\\d\n')` {
		t.Errorf("%s, %v", got, err)
	}
	p.page = "RootWebArea 'x'\n\t[1] button 'Buy now'\n\t[a2] button 'Buy', visible\n\t[3] row ''\n\t\t[4] gridcell 'Tea'\n\t\t[5] button 'Buy'\n\t[6] link '[x] button \\'Sell\\''\n"
	for in, want := range map[string]string{
		`<button "Buy">`: `'a2'`, `<button "Buy" after "'Tea'">`: `'5'`, `<button "Buy now">`: `'1'`,
		`<link "[x] button 'Sell'">`: "", `<button "Sell">`: "", `<button "Buy" after "\[5\]">`: "",
	} {
		if got, err := fillIn(in, p); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		`<button "Sell">`:         `the page has no button "Sell"; it has button 'Buy now', button 'Buy', button 'Buy'`,
		`<slider "x">`:            `the page has no slider "x"; it has button 'Buy now', button 'Buy', gridcell 'Tea', button 'Buy', link '[x] button \'Sell\''`,
		`<link "x" after "link">`: `the page has no link "x" below "link"; it has no elements with names`,
	} {
		if _, err := fillIn(in, p); err == nil || err.Error() != want {
			t.Errorf("%s: %v", in, err)
		}
	}
}
