package browsers_test

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// ahead waits until a pool has opened a context ahead.
func ahead(t *testing.T, p *browsers.Pool) {
	t.Helper()
	until(t, "a context is opened ahead", func() bool { return p.Stats().Prewarmed == 1 })
}

// methods are the calls of a browser while something is done.
func methods(b *cdp.Browser, do func()) (all []string) {
	var mu sync.Mutex
	b.Trace(func(c cdp.Traced) { mu.Lock(); all = append(all, c.Method); mu.Unlock() })
	do()
	b.Trace(nil)
	mu.Lock()
	defer mu.Unlock()
	return all
}

// A context that was opened ahead is what a new one is: of its own wish and options, and with
// nothing of those before.
func TestOpenedAhead(t *testing.T) {
	modes(t, func(t *testing.T, o browsers.Options) {
		p := newPool(t, o)
		url, host := site(t, map[string]string{"/": "<title>one</title>"})
		other, otherHost := site(t, map[string]string{"/": "<title>two</title>"})
		first, page := open(t, p.For(browsers.AccessOptions{Hosts: []string{host}}), cdp.ContextOptions{})
		if err := page.Goto(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		text(t, page, `localStorage.setItem("a", "b"), document.cookie = "c=d"`)
		for i := range 3 { // the last one is opened anew
			if i < 2 {
				ahead(t, p)
			}
			var c *cdp.Context
			calls := methods(first.Browser(), func() {
				c, page = open(t, p.For(browsers.AccessOptions{Hosts: []string{otherHost}}),
					cdp.ContextOptions{Width: 500 + i, Height: 400, Locale: "de-DE", TimeZone: "Asia/Tokyo",
						Downloads: "here"})
				ahead(t, p) // the next one, which is opened meanwhile
			})
			opened := 0
			for _, call := range calls {
				if call == "Target.createTarget" {
					opened++
				}
			}
			if anew := opened == 2; anew != (i == 2) || opened == 0 {
				t.Errorf("context %d: %q", i, calls)
			}
			if page.URL() != "about:blank" || len(c.Pages()) != 1 || c.Activity().Active != page {
				t.Errorf("it shows %q, and has %d pages", page.URL(), len(c.Pages()))
			}
			if err := page.Goto(t.Context(), url); err == nil {
				t.Error("it reaches what is another's")
			}
			if err := page.Goto(t.Context(), other); err != nil {
				t.Error(err)
			}
			const what = `[document.title, innerWidth, innerHeight, navigator.language, Intl.DateTimeFormat().resolvedOptions().timeZone, history.length, document.cookie + localStorage.length].join(" ")`
			if s, want := text(t, page, what), "two "+strconv.Itoa(500+i)+" 400 de-DE Asia/Tokyo 3 0"; s != want {
				t.Errorf("%q, not %q", s, want)
			}
			if i == 1 {
				if err := page.Close(t.Context()); err != nil {
					t.Error(err)
				}
				ahead(t, p)
				p.DropSpares()
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// What is opened ahead keeps no browser from ending, and takes nobody's place.
func TestAheadIsInNobodysWay(t *testing.T) {
	p := newPool(t, browsers.Options{Contexts: 2, MaxContexts: 3, Idle: 50 * time.Millisecond})
	a := p.For(browsers.AccessOptions{})
	c, _ := open(t, a, cdp.ContextOptions{})
	ahead(t, p)
	d, _ := open(t, a, cdp.ContextOptions{}) // takes it, and the last room
	time.Sleep(time.Second)
	if s := p.Stats(); s.Prewarmed != 0 || s.Contexts != 2 {
		t.Errorf("without room: %+v", s)
	}
	d.Close(t.Context())
	c.Close(t.Context())
	until(t, "nothing is opened ahead for nobody", func() bool { return p.Stats().Prewarmed == 0 })
	e, _ := open(t, a, cdp.ContextOptions{}) // the browser's last
	e.Close(t.Context())
	until(t, "the browser has ended", func() bool { return p.Stats().Browsers == 0 })
	if s := p.Stats(); s.Lost != 0 || s.Replaced != 1 {
		t.Errorf("%+v", s)
	}
}

// Whatever becomes of what was opened ahead, the next context is a sound one.
func TestAheadThatDies(t *testing.T) {
	p := newPool(t, browsers.Options{})
	url, host := site(t, map[string]string{"/": "<title>here</title>"})
	a := p.For(browsers.AccessOptions{Hosts: []string{host}})
	for what, kill := range map[string]func(*cdp.Browser){
		"its process": func(b *cdp.Browser) {
			for _, pid := range processTree([]string{strconv.Itoa(b.PID())}) {
				n, _ := strconv.Atoi(pid)
				if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(string(line),
					"--type=renderer") {
					syscall.Kill(n, syscall.SIGKILL)
				}
			}
		},
		"its browser": func(b *cdp.Browser) {
			b.Kill()
			<-b.Done()
		},
	} {
		c, _ := open(t, a, cdp.ContextOptions{})
		ahead(t, p)
		kill(c.Browser())
		next, page := open(t, a, cdp.ContextOptions{})
		if err := page.Goto(t.Context(), url); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		c.Close(t.Context())
		if err := next.Close(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
