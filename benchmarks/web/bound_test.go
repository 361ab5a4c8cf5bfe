package web_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// visit opens an episode on pages of ours.
func visit(t *testing.T, p *browsers.Pool, c web.Config, files fstest.MapFS) *web.Episode {
	t.Helper()
	e, err := web.Open(t.Context(), onPages(t, p, c, files))
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

// An address that never answers is an error of the action that goes there, also when that waits
// longer than a silent page may be silent.
func TestAddressThatNeverAnswers(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("no browser for tests (EVALRUN_TEST_BROWSER=1)")
	}
	p := browsers.New(browsers.Options{PageHang: 3 * time.Second})
	defer p.Close()
	var c web.Config
	c.Context.Timeout = 10 * time.Second
	e := visit(t, p, c, fstest.MapFS{"index.html": {
		Data: []byte(`<title>Start</title><body onmousedown="location = '/never'"><button>here</button>`)}})
	for _, code := range []string{"goto('" + web.SiteURL + "never')", "mouse_click(5, 5)",
		"new_tab()\ngoto('" + web.SiteURL + "never')", "noop(10)"} {
		r, err := e.Step(t.Context(), event.New(event.FromAgent, event.Browse{Code: code}))
		if err != nil {
			t.Fatal(err)
		}
		o := r.Obs.(event.Browsed)
		if r.Done || strings.Contains(code, "goto") != strings.Contains(o.Error,
			"TimeoutError: Page.goto: Timeout 10000ms exceeded.") {
			t.Fatalf("%s: done %v, error %q", code, r.Done, o.Error)
		}
	}
}

// stuck is a task whose judge hears of nothing, until it is told to end.
type stuck struct {
	at
	end chan struct{}
}

func (s stuck) Validate(context.Context, *cdp.Page, []browsergym.Message) (browsergym.Verdict, error) {
	<-s.end
	return browsergym.Verdict{Info: map[string]any{}}, nil
}

// A step that does not end with its time is given up, with the episode and its browser's context;
// what is left of it comes to its end.
func TestStepThatDoesNotEnd(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("no browser for tests (EVALRUN_TEST_BROWSER=1)")
	}
	p := browsers.New(browsers.Options{})
	defer p.Close()
	task := stuck{at{web.SiteURL}, make(chan struct{})}
	e := visit(t, p, web.Config{Task: func(uint32) (browsergym.Task, error) { return task, nil }},
		fstest.MapFS{"index.html": {Data: []byte(`<title>Start</title>`)}})
	a := event.New(event.FromAgent, event.Browse{Code: "noop(1)"})
	a.Timeout = time.Second
	r, err := e.Step(t.Context(), a)
	if err != nil || !r.Done || r.Reward == nil || *r.Reward != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	ev, err := e.Collect(t.Context(), agent.Answer{})
	if err != nil {
		t.Fatal(err)
	}
	if g, err := web.Grade(ev); err != nil || !slices.Contains(g.Flags, web.FlagPage) {
		t.Errorf("%+v, %v", g, err)
	}
	close(task.end)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.Contexts != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// A browser that answers nothing for a while holds up all that share it. A step that is late for
// that reason is no fault of its page: the trial is played again, in a browser of its own. There
// it has only itself to blame.
func TestStepThatIsHeldUp(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("no browser for tests (EVALRUN_TEST_BROWSER=1)")
	}
	for _, alone := range []bool{false, true} {
		t.Run(map[bool]string{false: "shared", true: "alone"}[alone], func(t *testing.T) {
			t.Parallel()
			p := browsers.New(browsers.Options{Hang: time.Minute})
			defer p.Close()
			c := web.Config{Task: func(uint32) (browsergym.Task, error) { return held{at{web.SiteURL}}, nil }}
			c = onPages(t, p, c, fstest.MapFS{"index.html": {Data: []byte(`<title>Start</title>`)}})
			if alone {
				c.Host = loner{c.Host}
			}
			e, err := web.Open(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			a := event.New(event.FromAgent, event.Browse{Code: "noop(1)"})
			a.Timeout = 8 * time.Second
			r, err := e.Step(t.Context(), a)
			if lost := new(benchmarks.BrowserLost); errors.As(err, &lost) == alone {
				t.Errorf("%+v, %v", r, err)
			}
			if alone && (err != nil || !r.Done || *r.Reward != 0) {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

type loner struct{ benchmarks.Host }

func (loner) Alone() bool { return true }

// held is a task during whose judgement the browser is stopped until the step is late.
type held struct{ at }

func (held) Validate(ctx context.Context, p *cdp.Page, _ []browsergym.Message) (browsergym.Verdict, error) {
	b := p.Context().Browser()
	b.Signal(syscall.SIGSTOP)
	<-ctx.Done()
	b.Signal(syscall.SIGCONT)
	return browsergym.Verdict{}, ctx.Err()
}
