package web_test

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/pool"
)

// visit opens an episode on pages of ours, where "/never" is not answered.
func visit(t *testing.T, p *pool.Pool, c web.Config, files fstest.MapFS) *web.Episode {
	t.Helper()
	s := web.Serve(files)
	w := pool.Wish{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := s.Dial(ctx, network, addr)
		return &mute{Conn: c, never: make(chan struct{})}, err
	}}
	c.Close, c.Actions = s.Close, action.Options{Subsets: []string{"bid", "coord", "nav", "tab"}}
	if c.Host == nil {
		c.Host = host{&agenttest.Log{}}
	}
	c.Task = func(uint32) (browsergym.Task, error) { return at{web.SiteURL}, nil }
	if err := (web.Browsers{Pool: p}).Give(&c, w); err != nil {
		t.Fatal(err)
	}
	e, err := web.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// An address that never answers is an error of the action that goes there, also when that waits longer than a silent page may be silent.
func TestAddressThatNeverAnswers(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("no browser for tests (EVALRUN_TEST_BROWSER=1)")
	}
	p := pool.New(pool.Options{PageHang: 3 * time.Second})
	defer p.Close()
	var c web.Config
	c.Context.Timeout = 10 * time.Second
	e := visit(t, p, c, fstest.MapFS{"index.html": {Data: []byte(`<title>Start</title><body onmousedown="location = '/never'"><button>here</button>`)}})
	for _, code := range []string{"goto('" + web.SiteURL + "never')", "mouse_click(5, 5)", "new_tab()\ngoto('" + web.SiteURL + "never')", "noop(10)"} {
		r, err := e.Step(t.Context(), event.New(event.FromAgent, event.Browse{Code: code}))
		if err != nil {
			t.Fatal(err)
		}
		o := r.Obs.(event.Browsed)
		if r.Done || strings.Contains(code, "goto") != strings.Contains(o.Error, "TimeoutError: Page.goto: Timeout 10000ms exceeded.") {
			t.Fatalf("%s: done %v, error %q", code, r.Done, o.Error)
		}
	}
}
