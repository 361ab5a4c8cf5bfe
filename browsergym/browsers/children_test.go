package browsers_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// kinds are the processes that a browser consists of, by what stands in their command lines.
var kinds = []string{"--type=zygote", "--type=gpu-process", "network.mojom.NetworkService",
	"storage.mojom.StorageService", "--type=utility", "--type=renderer", "crashpad"}

// TestNetworkingIsKilled: the process that does a browser's networking is started again by the
// browser, without the contexts' proxies. Nothing is reached then that the policy refuses, and the
// browser is replaced.
func TestNetworkingIsKilled(t *testing.T) {
	modes(t, func(t *testing.T, o browsers.Options) {
		p := newPool(t, o)
		url, host := site(t, map[string]string{"/": "<title>here</title>"})
		other, _ := site(t, map[string]string{"/": "<title>another's</title>"})
		a := p.For(browsers.AccessOptions{Hosts: []string{host}})
		c, page := open(t, a, cdp.ContextOptions{Timeout: 20 * time.Second})
		if err := page.Goto(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		killChildren(c.Browser(), "network.mojom.NetworkService")
		for range 100 {
			if err := page.Goto(t.Context(), other); err == nil {
				t.Error("what the policy refuses was reached")
			} else if browsers.Infra(err) {
				break
			}
		}
		until(t, "the browser is ended", func() bool { return p.Stats().Lost == 1 })
		if _, page = open(t, a, cdp.ContextOptions{}); page.Goto(t.Context(), url) != nil ||
			page.Goto(t.Context(), other) == nil {
			t.Error("the next browser's policy is another")
		}
	})
}

// killChildren kills the processes of a browser that have a text in their command line.
func killChildren(b *cdp.Browser, kind string) {
	for _, pid := range processTree([]string{strconv.Itoa(b.PID())}) {
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		if id, err := strconv.Atoi(pid); err == nil && id != b.PID() && strings.Contains(string(line), kind) {
			syscall.Kill(id, syscall.SIGKILL)
		}
	}
}

// A browser whose processes are killed one after the other, in the middle of steps, costs who has
// its contexts an error at most: it is well again soon, or is replaced, and nobody waits for ever.
func TestChildrenAreKilled(t *testing.T) {
	p := newPool(t, browsers.Options{Contexts: 4, Hang: 8 * time.Second, PageHang: 6 * time.Second})
	url, host := site(t, map[string]string{"/": "<title>here</title><p>text"})
	a := p.For(browsers.AccessOptions{Hosts: []string{host}})
	step := func(ctx context.Context, page *cdp.Page) error {
		err := page.Goto(ctx, url)
		if err == nil {
			_, err = page.Observe(ctx, cdp.ObserveOptions{Picture: true})
		}
		return err
	}
	for i, kind := range kinds {
		if testing.Short() && i%4 != 0 {
			continue // the pool looks only every two seconds
		}
		t.Run(strings.TrimPrefix(kind, "--type="), func(t *testing.T) {
			c, page := open(t, a, cdp.ContextOptions{Timeout: 20 * time.Second})
			defer c.Close(context.Background())
			if err := step(t.Context(), page); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(10*time.Millisecond, func() { killChildren(c.Browser(), kind) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 10 {
				step(ctx, page) // which may fail, and goes on
			}
			if ctx.Err() != nil {
				t.Errorf("a step waits for ever")
			}
			if err := c.Close(t.Context()); err != nil {
				t.Errorf("closing: %v", err)
			}
			time.Sleep(3 * time.Second) // the pool looks after its browsers every two
			until(t, "a new context is well", func() bool {
				next, page := open(t, a, cdp.ContextOptions{Timeout: 20 * time.Second})
				defer next.Close(context.Background())
				for range 3 {
					if err := step(t.Context(), page); err != nil {
						t.Logf("a new context: %v", err)
						return false
					}
				}
				return true
			})
		})
	}
}
