package cdp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/cdp"
)

// pages serves pages of ours by name.
func pages(t *testing.T, all map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := all[strings.TrimPrefix(r.URL.Path, "/")]
		switch {
		case strings.HasPrefix(r.URL.Path, "/again"):
			http.Redirect(w, r, fmt.Sprintf("/again%d", time.Now().UnixNano()), http.StatusFound)
		case strings.HasPrefix(r.URL.Path, "/endless"):
			w.Header().Set("Content-Disposition", "attachment; filename=endless.bin")
			part := make([]byte, 1<<20)
			for r.Context().Err() == nil {
				if _, err := w.Write(part); err != nil {
					return
				}
			}
		case !ok:
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, ".js"):
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, text)
		default:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, text)
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL + "/"
}

// within fails the test when f takes longer.
func within(t *testing.T, limit time.Duration, f func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("the step's limit"))
	defer cancel()
	start := time.Now()
	err := f(ctx)
	if d := time.Since(start); d > limit+5*time.Minute { // the machine may be busy
		t.Errorf("it took %v, its limit was %v", d, limit)
	}
	return err
}

// open opens a page. Time limits that a test does not set are so long that only a hang reaches
// them, however busy the machine is.
func open(t *testing.T, b *cdp.Browser, o cdp.ContextOptions, url string) (*cdp.Context, *cdp.Page) {
	t.Helper()
	if o.ActionTimeout == 0 {
		o.ActionTimeout = 5 * time.Minute
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Minute
	}
	c, err := b.NewContext(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	p, err := c.NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if url != "" {
		if err := p.Goto(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
	return c, p
}

// healthy makes sure that the browser still serves others.
func healthy(t *testing.T, b *cdp.Browser) {
	t.Helper()
	_, p := open(t, b, cdp.ContextOptions{}, "data:text/html,<title>well</title><button>x</button>")
	o, err := p.Observe(t.Context(), cdp.ObserveOptions{Picture: true})
	if err != nil || len(o.Properties.Bids()) != 5 || len(o.Picture) == 0 {
		t.Errorf("the browser is not well afterwards: %v", err)
	}
}

func TestHangingBrowsers(t *testing.T) {
	for name, script := range map[string]string{"silent": "exec sleep 100", "dies": "echo no display >&2; exit 3",
		"babbles": "while :; do printf 'x\\0' >&4; sleep 0.01; done",
		"old":     `head -c 1 <&3 >/dev/null; printf '{"id":1,"result":{"product":"HeadlessChrome/100.0"}}\0' >&4; exec sleep 100`} {
		limit := 2 * time.Second
		if name == "dies" || name == "old" { // which say what is wrong themselves, as soon as the machine lets them
			limit = time.Minute
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "browser")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			home := t.TempDir()
			err := within(t, limit, func(ctx context.Context) error {
				_, err := cdp.Launch(ctx, cdp.Options{Path: path, Dir: home})
				return err
			})
			if err == nil {
				t.Error("it was started")
			}
			if name == "dies" && !strings.Contains(err.Error(), "no display") {
				t.Errorf("error without its last words: %v", err)
			}
			if name == "old" && !strings.Contains(err.Error(), "HeadlessChrome/100.0 is too old") {
				t.Errorf("error of an old one: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(home, "*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestBrowserDies(t *testing.T) {
	for name, act := range map[string]func(context.Context, *cdp.Page) error{
		"observe": func(ctx context.Context, p *cdp.Page) error {
			_, err := p.Observe(ctx, cdp.ObserveOptions{})
			return err
		},
		"evaluate": func(ctx context.Context, p *cdp.Page) error {
			return p.Evaluate(ctx, "new Promise(() => {})", nil)
		},
		"goto":  func(ctx context.Context, p *cdp.Page) error { return p.Goto(ctx, "http://127.0.0.1:1/") },
		"click": func(ctx context.Context, p *cdp.Page) error { return p.Select("#none").Click(ctx, cdp.Click{}) },
		"page":  func(ctx context.Context, p *cdp.Page) error { _, err := p.Context().NewPage(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			b := launch(t)
			_, p := open(t, b, cdp.ContextOptions{ActionTimeout: 30 * time.Second},
				"data:text/html,"+strings.Repeat("<p>x", 2000))
			time.AfterFunc(20*time.Millisecond, b.Kill)
			err := within(t, 20*time.Second, func(ctx context.Context) error {
				for {
					if err := act(ctx, p); err != nil && (errors.Is(err, cdp.ErrClosed) || ctx.Err() != nil) {
						return err
					}
				}
			})
			if !errors.Is(err, cdp.ErrClosed) {
				t.Errorf("error %v", err)
			}
			<-b.Exited()
			if !strings.Contains(b.ExitReason(), "killed") {
				t.Errorf("it ended so: %s", b.ExitReason())
			}
		})
	}
}

func TestBrowserHangs(t *testing.T) {
	b := launch(t)
	_, p := open(t, b, cdp.ContextOptions{}, "data:text/html,<p>x")
	b.Signal(syscall.SIGSTOP)
	err := within(t, time.Second, func(ctx context.Context) error {
		_, err := p.Observe(ctx, cdp.ObserveOptions{})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "the step's limit") {
		t.Errorf("error %v", err)
	}
	start := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("closing took %v", d)
	}
}

// TestMemoryBomb: a page that takes all the memory that its process may have ends that process
// alone.
func TestMemoryBomb(t *testing.T) {
	b := launch(t, "--js-flags=--max-old-space-size=64")
	c, p := open(t, b, cdp.ContextOptions{}, "data:text/html,<title>bomb</title>")
	err := within(t, 20*time.Second, func(ctx context.Context) error {
		return p.Evaluate(ctx, "(() => { const a = []; for (;;) a.push(new Array(1e5).fill(a.length + 0.5)); })()", nil)
	})
	if err == nil || !p.Crashed() {
		t.Errorf("a page that takes all memory: %v", err)
	}
	if _, err := p.Observe(t.Context(), cdp.ObserveOptions{}); err == nil ||
		!strings.Contains(err.Error(), "Target crashed") {
		t.Errorf("observing it: %v", err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	healthy(t, b)
}

// TestGraphicsCrash: the process that draws is started again.
func TestGraphicsCrash(t *testing.T) {
	needBrowser(t)
	dir := t.TempDir()
	b, err := cdp.Launch(t.Context(), cdp.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	_, p := open(t, b, cdp.ContextOptions{}, "data:text/html,<p>x")
	drawer := process(dir, "--type=gpu-process")
	if drawer == 0 {
		t.Skip("this browser draws in its own process")
	}
	if err := syscall.Kill(drawer, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err = within(t, 20*time.Second, func(ctx context.Context) error {
		_, err := p.Observe(ctx, cdp.ObserveOptions{Picture: true})
		return err
	})
	if err != nil {
		t.Errorf("a page whose drawing process has died: %v", err)
	}
	healthy(t, b)
}

// process is one of a kind among those of the browser whose profile lies in dir; 0: there is none.
func process(dir, kind string) int {
	group := ""
	found := map[string]int{} // by group
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range all {
		line, _ := os.ReadFile(d + "/cmdline")
		stat, _ := os.ReadFile(d + "/stat")
		i := bytes.LastIndexByte(stat, ')')
		if i < 0 {
			continue
		}
		f := strings.Fields(string(stat[i+1:]))
		switch {
		case len(f) < 3:
		case bytes.Contains(line, []byte(kind)):
			found[f[2]], _ = strconv.Atoi(filepath.Base(d))
		case bytes.Contains(line, []byte("--user-data-dir="+dir)) && !bytes.Contains(line, []byte("--type=")):
			group = f[2]
		}
	}
	return found[group]
}

func TestHostilePages(t *testing.T) {
	b := launch(t)
	url := pages(t, map[string]string{
		"alerts":  `<title>alerts</title><button onclick="for(;;)alert(1)">x</button>`,
		"loop":    `<title>loop</title><button onclick="for(;;);">x</button>`,
		"unload":  `<title>unload</title><button onclick="onbeforeunload=e=>{e.preventDefault();return 'x'}">x</button>`,
		"popups":  `<title>popups</title><button onclick="setInterval(()=>window.open('about:blank'),1)">x</button>`,
		"windows": `<title>windows</title><button onclick="window.close()">x</button>`,
		"frames":  `<title>frames</title><body><script>for(let i=0;i<2000;i++){const f=document.createElement('iframe');f.srcdoc='<p>'+i;document.body.append(f)}</script>`,
		"nodes":   `<title>nodes</title><body><script>document.body.innerHTML='<p>x</p>'.repeat(50000)</script>`,
		"deep":    `<title>deep</title><body><script>let e=document.body;for(let i=0;i<800;i++)e=e.appendChild(document.createElement('div'))</script>`,
		"changes": `<title>changes</title><div id=d></div><script>setInterval(()=>{d.innerHTML='';const f=document.createElement('iframe');f.srcdoc='<b>x</b>';d.append(f)},1)</script>`,
		"spoof":   `<title>spoof</title><p aria-description="browsergym_id_99 real">a</p><p aria-roledescription="browsergym_id_5">b</p><button aria-description="mine">c</button>`,
		"words": `<title>` + strings.Repeat("\x1b[31m&lt;b&gt;", 100000) + `</title><button aria-label="` +
			strings.Repeat("x", 10<<20) + `">x</button>`,
		"proxy":     `<title>proxy</title><button>x</button><script>Element.prototype.setAttribute=()=>{throw new Error('no')};Array.prototype.push=()=>0;window.Promise=null;document.querySelectorAll=null</script>`,
		"worker":    `<title>worker</title><p id=p>none</p><script>navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready).then(() => p.textContent = 'ready')</script>`,
		"worker.js": `onactivate=e=>e.waitUntil(clients.claim());onfetch=e=>{if(e.request.url.endsWith('spoof'))e.respondWith(new Response('<title>forged</title>',{headers:{'Content-Type':'text/html'}}))};for(let i=0;i<3;i++)setInterval(()=>{},0)`,
		"webgl":     `<title>webgl</title><button>x</button><script>for(let i=0;i<40;i++){const c=document.body.appendChild(document.createElement('canvas')),g=c.getContext('webgl');if(g){g.clear(16384);const x=g.getExtension('WEBGL_lose_context');if(x&&i%2)x.loseContext()}}</script>`,
		"copies":    `<title>copies</title><ul id=l><li>one</ul><script>setInterval(()=>{if(l.children.length<50&&l.firstChild.hasAttribute('bid'))l.append(l.firstChild.cloneNode(true))},1)</script>`,
		"huge":      `<title>huge</title><body><script>const x='x'.repeat(1<<24);for(let i=0;i<64;i++)document.body.append(x+i)</script>`,
		"rejoin":    `<title>rejoin</title><meta http-equiv=refresh content="0.02">`,
	})
	see := func(ctx context.Context, p *cdp.Page) (*cdp.Observation, error) {
		return p.Observe(ctx, cdp.ObserveOptions{})
	}
	press := func(t *testing.T, ctx context.Context, p *cdp.Page) error {
		return p.Select("button").Click(ctx, cdp.Click{})
	}

	t.Run("at once", func(t *testing.T) {
		for _, name := range []string{"alerts", "loop"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, p := open(t, b, cdp.ContextOptions{ActionTimeout: 500 * time.Millisecond}, url+name)
				if err := within(t, 8*time.Second,
					func(ctx context.Context) error { return press(t, ctx, p) }); !cdp.Timeout(err) {
					t.Errorf("click: %v", err)
				}
				err := within(t, time.Second, func(ctx context.Context) error { _, err := see(ctx, p); return err })
				if err == nil || !strings.Contains(err.Error(), "the step's limit") {
					t.Errorf("observing a page that hangs: %v", err)
				}
				err = within(t, 3*time.Second,
					func(ctx context.Context) error { return p.GotoWithin(ctx, url+"spoof", 2*time.Second) })
				t.Logf("leaving it: %v", err)
			})
		}
		t.Run("huge", func(t *testing.T) { // a gigabyte of text
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, "")
			if err := p.GotoWithin(t.Context(), url+"huge", 10*time.Second); err != nil && !cdp.Timeout(err) {
				t.Logf("going there: %v", err) // it may crash on the way
			}
			err := within(t, 10*time.Second, func(ctx context.Context) error { _, err := see(ctx, p); return err })
			t.Logf("observing it: %v", err)
			if err == nil {
				t.Error("a gigabyte was observed")
			}
		})
		t.Run("worker", func(t *testing.T) {
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, url+"worker")
			ready := func() (text string) {
				p.Evaluate(t.Context(), "p.textContent", &text)
				return text
			}
			for end := time.Now().Add(time.Minute); ready() != "ready" && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			title := func(p *cdp.Page) string {
				if err := p.Goto(t.Context(), url+"spoof"); err != nil {
					t.Fatal(err)
				}
				s, err := p.Title(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			if got := title(p); got != "forged" {
				t.Errorf("the page that its worker answers is %q", got)
			}
			_, other := open(t, b, cdp.ContextOptions{}, "")
			if got := title(other); got != "spoof" {
				t.Errorf("another context sees %q", got)
			}
		})
		t.Run("webgl", func(t *testing.T) {
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, url+"webgl")
			err := within(t, time.Minute, func(ctx context.Context) error {
				o, err := p.Observe(ctx, cdp.ObserveOptions{Picture: true})
				if err == nil && len(o.Picture) == 0 {
					t.Error("no picture")
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
		t.Run("copies", func(t *testing.T) { // elements that take their bid from another
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, url+"copies")
			n := 0
			for end := time.Now().Add(time.Minute); n < 8 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				o, err := see(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				n = len(o.Properties.Bids())
			}
			if n < 8 {
				t.Errorf("%d elements have a bid of their own", n)
			}
		})
		t.Run("unload", func(t *testing.T) {
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, url+"unload")
			if err := press(t, t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if err := within(t, 20*time.Second,
				func(ctx context.Context) error { return p.Goto(ctx, url+"spoof") }); err != nil {
				t.Errorf("leaving it: %v", err)
			}
		})
		t.Run("popups", func(t *testing.T) {
			t.Parallel()
			c, p := open(t, b, cdp.ContextOptions{MaxPages: 5}, url+"popups")
			if err := press(t, t.Context(), p); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(5 * time.Minute); c.Refused() < 5 && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			if n := len(c.Pages()); n > 5 || c.Refused() < 5 {
				t.Errorf("%d pages are open, %d were refused", n, c.Refused())
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		t.Run("windows", func(t *testing.T) {
			t.Parallel()
			c, p := open(t, b, cdp.ContextOptions{}, "")
			if err := p.Goto(t.Context(), url+"windows"); err != nil {
				t.Fatal(err)
			}
			q, err := c.Active(t.Context())
			if err != nil || q != p {
				t.Fatalf("active page: %v", err)
			}
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			var f *cdp.Failure
			if err := press(t, t.Context(), p); !errors.As(err, &f) || f.Kind != "TargetClosedError" {
				t.Errorf("click on a closed page: %v", err)
			}
			if q, err = c.Active(t.Context()); err != nil || q == p {
				t.Errorf("a new active page: %v", err)
			}
		})
		// the first may be too much for the time that it gets
		for name, bids := range map[string]int{"frames": 2000 * 4, "nodes": 50000, "deep": 800} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, p := open(t, b, cdp.ContextOptions{}, "")
				start := time.Now()
				if err := p.GotoWithin(t.Context(), url+name, 8*time.Second); err != nil && !cdp.Timeout(err) {
					t.Error(err)
				}
				err := within(t, 8*time.Second, func(ctx context.Context) error {
					o, err := p.Observe(ctx, cdp.ObserveOptions{NoAX: name == "nodes"})
					if err == nil && len(o.Properties.Bids()) < bids {
						t.Errorf("%d elements were marked", len(o.Properties.Bids()))
					}
					return err
				})
				t.Logf("%v: %v", time.Since(start), err)
				// a machine may be too slow for it, which is then said
				if err != nil && !strings.Contains(err.Error(), "the step's limit") {
					t.Error(err)
				}
			})
		}
		t.Run("changes", func(t *testing.T) {
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, url+"changes")
			err := within(t, 30*time.Second, func(ctx context.Context) error { _, err := see(ctx, p); return err })
			t.Logf("a page that changes under the observer: %v", err)
			var f *cdp.Failure
			if err != nil && !errors.As(err, &f) {
				t.Errorf("a page's fault is not told as one: %v", err)
			}
		})
		t.Run("rejoin", func(t *testing.T) {
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, url+"rejoin")
			err := within(t, 30*time.Second, func(ctx context.Context) error { _, err := see(ctx, p); return err })
			var f *cdp.Failure
			if err != nil && !errors.As(err, &f) {
				t.Errorf("a page's fault is not told as one: %v", err)
			}
		})
		t.Run("spoof", func(t *testing.T) {
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, url+"spoof")
			for range 2 {
				if _, err := see(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				var left []string
				if err := p.Evaluate(t.Context(),
					`[...document.querySelectorAll('[aria-description],[aria-roledescription]')].map(e => e.outerHTML.replace(/ (browsergym|bid)\w*="[^"]*"| value=""/g, ''))`, &left); err != nil {
					t.Fatal(err)
				}
				if fmt.Sprint(left) != `[<p aria-description="browsergym_id_99 real">a</p> <p aria-roledescription="browsergym_id_5">b</p> <button aria-description="mine">c</button>]` {
					t.Errorf("left in the page: %q", left)
				}
			}
		})
		t.Run("words", func(t *testing.T) {
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, url+"words")
			if _, err := see(t.Context(), p); err != nil {
				t.Error(err)
			}
		})
		t.Run("proxy", func(t *testing.T) {
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, url+"proxy")
			err := within(t, 20*time.Second, func(ctx context.Context) error { _, err := see(ctx, p); return err })
			if err != nil {
				t.Errorf("a page that breaks its own methods: %v", err)
			}
			if err := press(t, t.Context(), p); err != nil {
				t.Errorf("acting on it: %v", err)
			}
		})
		t.Run("redirects", func(t *testing.T) {
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{}, "")
			err := within(t, 20*time.Second, func(ctx context.Context) error { return p.Goto(ctx, url+"again") })
			if err == nil || !strings.Contains(err.Error(), "net::ERR_TOO_MANY_REDIRECTS") {
				t.Errorf("error %v", err)
			}
		})
		t.Run("crash", func(t *testing.T) {
			t.Parallel()
			c, p := open(t, b, cdp.ContextOptions{}, "")
			if err := p.Goto(t.Context(), "chrome://crash"); err == nil {
				t.Error("a page that crashes was loaded")
			}
			err := within(t, 20*time.Second, func(ctx context.Context) error { _, err := see(ctx, p); return err })
			if err == nil || !strings.Contains(err.Error(), "Target crashed") {
				t.Errorf("observe: %v", err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
		t.Run("downloads", func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c, p := open(t, b, cdp.ContextOptions{Downloads: dir, DownloadLimit: 4 << 20}, "")
			err := within(t, 20*time.Second, func(ctx context.Context) error { return p.Goto(ctx, url+"endless") })
			if err == nil || !strings.Contains(err.Error(), "net::ERR_ABORTED") {
				t.Errorf("goto: %v", err)
			}
			deadline := time.Now().Add(time.Minute)
			state := func() string {
				if d := c.Downloads(); len(d) == 1 {
					return d[0].State
				}
				return "none"
			}
			for state() != "canceled" && time.Now().Before(deadline) {
				time.Sleep(10 * time.Millisecond)
			}
			if state() != "canceled" {
				t.Errorf("a download without end: %+v", c.Downloads())
			}
		})
		t.Run("refused", func(t *testing.T) {
			t.Parallel()
			_, p := open(t, b, cdp.ContextOptions{Refuse: []string{"file://*", "http://169.254.*"}}, "")
			if err := p.Goto(t.Context(), "file:///etc/passwd"); err == nil ||
				!strings.Contains(err.Error(), "net::ERR_BLOCKED_BY_CLIENT") {
				t.Errorf("a file: %v", err)
			}
			if err := p.Goto(t.Context(), "http://169.254.169.254/latest/"); err == nil ||
				!strings.Contains(err.Error(), "net::ERR_BLOCKED_BY_CLIENT") {
				t.Errorf("an address: %v", err)
			}
			if err := p.Goto(t.Context(), url+"spoof"); err != nil {
				t.Error(err)
			}
		})
	})
	healthy(t, b)
}
