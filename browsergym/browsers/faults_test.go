package browsers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// until waits for something to become true.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("after a minute still not: %s", what)
		}
	}
}

// crowd is four contexts on two browsers, each at a page.
func crowd(t *testing.T, p *browsers.Pool) (ctxs []*cdp.Context, pages []*cdp.Page, url string) {
	url, host := site(t, map[string]string{"/": "<title>here</title>"})
	for range 4 {
		c, page := open(t, p.For(browsers.AccessOptions{Hosts: []string{host}}), cdp.ContextOptions{})
		if err := page.Goto(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		ctxs, pages = append(ctxs, c), append(pages, page)
	}
	if s := p.Stats(); s.Browsers != 2 {
		t.Fatalf("%+v", s)
	}
	return ctxs, pages, url
}

// hurt sees that the first browser's two contexts have one error each, and that the others know
// nothing of it.
func hurt(t *testing.T, p *browsers.Pool, ctxs []*cdp.Context, pages []*cdp.Page, url string) {
	t.Helper()
	for i, page := range pages {
		err := page.Goto(t.Context(), url)
		lost := ctxs[i].Browser() == ctxs[0].Browser()
		if lost && !browsers.Infra(err) {
			t.Errorf("context %d of the browser that ended: %v", i, err)
		}
		if !lost && err != nil {
			t.Errorf("context %d of the other browser: %v", i, err)
		}
		if err := ctxs[i].Close(t.Context()); err != nil {
			t.Errorf("closing context %d: %v", i, err)
		}
	}
	if _, page := open(t, p.For(browsers.AccessOptions{}), cdp.ContextOptions{}); page.Goto(t.Context(),
		"about:blank") != nil {
		t.Error("the pool gives no more contexts that work")
	}
	if s := p.Stats(); s.Lost != 1 || s.Contexts != 1 {
		t.Errorf("%+v", s)
	}
}

func TestABrowserIsKilled(t *testing.T) {
	p := newPool(t, browsers.Options{PerBrowser: 2, Contexts: 4})
	ctxs, pages, url := crowd(t, p)
	if err := syscall.Kill(ctxs[0].Browser().PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-ctxs[0].Browser().Done()
	hurt(t, p, ctxs, pages, url)
}

func TestABrowserHangs(t *testing.T) {
	p := newPool(t, browsers.Options{PerBrowser: 2, Contexts: 4, Hang: 8 * time.Second})
	ctxs, pages, url := crowd(t, p)
	ctxs[0].Browser().Signal(syscall.SIGSTOP)
	<-ctxs[0].Browser().Done()
	hurt(t, p, ctxs, pages, url)
	if s := p.Stats(); s.Hung != 1 {
		t.Errorf("%+v", s)
	}
}

// TestNothingIsDrawn stops the process that draws for all pages of a browser. A browser with several
// contexts is ended, since each of them waits for something that is not its own.
func TestNothingIsDrawn(t *testing.T) {
	for _, n := range []int{1, 2} {
		if n == 1 && testing.Short() {
			continue
		}
		p := newPool(t, browsers.Options{PerBrowser: 2, PageHang: 6 * time.Second})
		var c *cdp.Context
		var page *cdp.Page
		for range n {
			c, page = open(t, p.For(browsers.AccessOptions{}), cdp.ContextOptions{})
			if err := page.Goto(t.Context(), "about:blank"); err != nil {
				t.Fatal(err)
			}
		}
		drawer := 0
		for _, pid := range processTree([]string{strconv.Itoa(c.Browser().PID())}) {
			if b, _ := os.ReadFile("/proc/" + pid + "/cmdline"); strings.Contains(string(b), "--type=gpu-process") {
				drawer, _ = strconv.Atoi(pid)
			}
		}
		if drawer == 0 {
			t.Skip("this browser draws in its own process")
		}
		if err := syscall.Kill(drawer, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		limit := 10 * time.Second
		if n > 1 {
			limit = 5 * time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := page.Screenshot(ctx, 1)
		if shared := n > 1; err == nil || browsers.Infra(err) != shared {
			t.Errorf("%d contexts: %v", n, err)
		}
		if s := p.Stats(); s.Hung != n-1 {
			t.Errorf("%d contexts: %+v", n, s)
		}
		syscall.Kill(drawer, syscall.SIGCONT)
	}
}

func TestReplacedUnderLoad(t *testing.T) {
	p := newPool(t, browsers.Options{PerBrowser: 3, MaxContexts: 4, Contexts: 5})
	url, host := site(t, map[string]string{"/": "<title>here</title>"})
	a := p.For(browsers.AccessOptions{Hosts: []string{host}})
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 3 {
				c, err := a.NewContext(t.Context(), cdp.ContextOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				page, err := c.NewPage(t.Context())
				if err == nil {
					err = page.GotoWithin(t.Context(), url, time.Minute)
				}
				if err = errors.Join(err, c.Close(t.Context())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if s := p.Stats(); s.Opened != 18 || s.Contexts != 0 || s.Replaced < 3 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	until(t, "browsers that are replaced have ended", func() bool { return p.Stats().Browsers <= 2 })
}

// A page that takes too much memory crashes alone.
func TestMemoryOfAPage(t *testing.T) {
	p := newPool(t, browsers.Options{PageMemory: 300 << 20})
	url, host := site(t, map[string]string{"/": "<title>here</title>"})
	a := p.For(browsers.AccessOptions{Hosts: []string{host}})
	_, bomb := open(t, a, cdp.ContextOptions{})
	_, other := open(t, a, cdp.ContextOptions{})
	for _, page := range []*cdp.Page{bomb, other} {
		if err := page.Goto(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	}
	text(t, bomb, `setTimeout(() => { window.all = []; setInterval(() => all.push(new Uint8Array(20 << 20).fill(1)), 50) }), ""`)
	until(t, "the page has crashed", bomb.Crashed)
	if s := text(t, other, "document.title"); s != "here" {
		t.Errorf("the other page: %q", s)
	}
	if s := p.Stats(); s.PagesEnded == 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// What pages store in the browser itself ends it, before it takes the machine's memory; the pool
// goes on with another.
func TestMemoryOfABrowser(t *testing.T) {
	p := newPool(t, browsers.Options{Memory: 400 << 20})
	url, host := site(t, map[string]string{"/": "<title>here</title>"})
	a := p.For(browsers.AccessOptions{Hosts: []string{host}})
	_, page := open(t, a, cdp.ContextOptions{})
	if err := page.Goto(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	text(t, page, `setTimeout(async () => { window.all = []; for (;;) { all.push(new Blob([new Uint8Array(20 << 20).fill(all.length)])); await new Promise(r => setTimeout(r, 50)) } }), ""`)
	until(t, "the browser is ended", func() bool { return p.Stats().Lost == 1 })
	_, page = open(t, a, cdp.ContextOptions{})
	if err := page.Goto(t.Context(), url); err != nil {
		t.Error(err)
	}
}

func TestNoBrowser(t *testing.T) {
	dir := t.TempDir()
	sleeper := filepath.Join(dir, "sleeper")
	if err := os.WriteFile(sleeper, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, limit := range map[string]time.Duration{"/nowhere/chromium": time.Minute, "/bin/false": time.Minute,
		sleeper: 300 * time.Millisecond} {
		p := browsers.New(browsers.Options{Path: path, Dir: dir, Contexts: 1})
		for range 2 { // the room is given back
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			_, err := p.For(browsers.AccessOptions{}).NewContext(ctx, cdp.ContextOptions{})
			cancel()
			if slow := limit < time.Second; slow && !errors.Is(err, context.DeadlineExceeded) || !slow &&
				!errors.As(err, new(*browsers.Error)) {
				t.Errorf("%s: %v", path, err)
			}
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "evalrun*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestWishesThatAreWrong(t *testing.T) {
	p := browsers.New(browsers.Options{Dir: t.TempDir()})
	defer p.Close()
	for _, o := range []browsers.AccessOptions{{Network: sandbox.Network{Mode: "some"}},
		{Hosts: []string{"example.org"}},
		{Files: []string{"/etc"}}} {
		if _, err := p.For(o).NewContext(t.Context(), cdp.ContextOptions{}); err == nil || browsers.Infra(err) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestOurOwnDeath kills a process that has browsers. What is left of them is found by the next.
func TestOurOwnDeath(t *testing.T) {
	needBrowser(t)
	if dir := os.Getenv("POOL_TEST_DIE"); dir != "" {
		p := browsers.New(browsers.Options{Dir: dir, PerBrowser: 1, Plain: os.Getenv("POOL_TEST_PLAIN") != ""})
		for range 2 {
			c, err := p.For(browsers.AccessOptions{}).NewContext(t.Context(), cdp.ContextOptions{Downloads: "here"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.NewPage(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Println("ready")
		select {}
	}
	modes(t, die)
}

func die(t *testing.T, o browsers.Options) {
	dir, err := os.MkdirTemp("", "pool-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOurOwnDeath$")
	cmd.Env = append(os.Environ(), "POOL_TEST_DIE="+dir)
	if o.Plain {
		cmd.Env = append(cmd.Env, "POOL_TEST_PLAIN=1")
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	mine := processTree(users(dir))
	if len(mine) < 2 {
		t.Fatalf("browsers: %v", mine)
	}
	if n, err := browsers.Sweep(t.Context(), dir, func(sandbox.Owner) bool { return true }); n != 0 || err != nil {
		t.Errorf("while its owner lived: %d, %v", n, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	until(t, "the browsers have ended with their owner", func() bool {
		return !slices.ContainsFunc(mine, func(pid string) bool {
			b, err := os.ReadFile("/proc/" + pid + "/status")
			return err == nil && !strings.Contains(string(b), "(zombie)")
		})
	})
	n, err := browsers.Sweep(t.Context(), dir, func(o sandbox.Owner) bool { return o.PID != cmd.Process.Pid })
	if n != 2 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// users are the processes that have a folder in their command line, as browsers have.
func users(dir string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, _ := os.ReadFile(f); strings.Contains(string(b), dir) && !strings.Contains(string(b), "-test.run") {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}

// processTree are processes with all that came of them.
func processTree(pids []string) []string {
	parents := map[string][]string{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			if w := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:])); len(w) > 1 {
				parents[w[1]] = append(parents[w[1]], filepath.Base(filepath.Dir(f)))
			}
		}
	}
	seen := map[string]bool{}
	var all []string
	for todo := pids; len(todo) > 0; todo = todo[1:] {
		if pid := todo[0]; !seen[pid] {
			seen[pid] = true
			all = append(all, pid)
			todo = append(todo[:len(todo):len(todo)], parents[pid]...)
		}
	}
	return all
}

// Of pools that are closed nothing is left in this process either: no descriptor, no goroutine, no
// socket.
func TestNothingIsLeftOfPools(t *testing.T) {
	modes(t, func(t *testing.T, o browsers.Options) {
		url, host := site(t, map[string]string{"/": "<title>here</title>"})
		round := func() (descriptors, goroutines int) {
			t.Run("round", func(t *testing.T) {
				o.PerBrowser = 2
				p := newPool(t, o)
				a := p.For(browsers.AccessOptions{Hosts: []string{host}})
				for i := range 3 {
					c, page := open(t, a, cdp.ContextOptions{Downloads: "yes"})
					if err := page.Goto(t.Context(), url); err != nil {
						t.Fatal(err)
					}
					if i == 0 { // the others end with the pool
						if err := c.Close(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
			http.DefaultClient.CloseIdleConnections()
			fds, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(fds), runtime.NumGoroutine()
		}
		fds, gos := round() // what is made once is made
		until(t, "no more than before", func() bool {
			f, g := round()
			return f <= fds && g <= gos
		})
	})
}
