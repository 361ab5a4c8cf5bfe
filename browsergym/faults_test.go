package browsergym_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// TestFaultyActions: whatever an agent writes, it reads what is wrong with it, soon, and the
// episode goes on.
func TestFaultyActions(t *testing.T) {
	e, _, _ := open(t, browsergym.Options{}, "<title>well</title><button>x</button>")
	for name, text := range map[string]string{
		"a megabyte of one name": strings.Repeat("x", 1<<20),
		"a megabyte of text":     "send_msg_to_user('" + strings.Repeat("é\\n", 300_000),
		"a megabyte of calls":    strings.Repeat("nothing()\n", 100_000),
		"deep nesting":           "click(" + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + ")",
		"deep calls":             strings.Repeat("click(", 100_000),
		"no call":                "I would click the button.",
		"an expression":          "click('4' + '5')",
		"an attribute":           "click.__globals__['os'].system('true')",
		"an unknown call":        "__import__('os')",
		"an unknown argument":    "click('4', nothing=1)",
		"zero bytes":             "click('\x00')\x00",
		"escape codes":           "click('\x1b[2J')",
		"markup":                 "click('<b>\"&')",
		"a bid like a selector":  `click('4"],*[bid="4')`,
	} {
		start := time.Now()
		r := step(t, e, text)
		if r.Observation.LastError == "" || r.Terminated {
			t.Errorf("%s: it was accepted", name)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%s: it took %v", name, d)
		}
		if n := len(r.Observation.LastError); n > 3<<20 {
			t.Errorf("%s: its error has %d bytes", name, n)
		}
	}
	if r := step(t, e, "click('"+bidOf(t, step(t, e, "noop(0)").Observation, "x")+"')"); r.Observation.LastError != "" {
		t.Errorf("afterwards: %s", r.Observation.LastError)
	}
}

// TestFaultyTasks: what is wrong with a task's page is said at its set-up; a score that is no
// number is none.
func TestFaultyTasks(t *testing.T) {
	b := launch(t)
	well, err := os.ReadFile("testdata/press-it.html")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{
		"/no-goal.html": strings.Replace(string(well), `<div id="query"></div>`, "", 1),
		"/no-core.html": "<title>none</title><div id=query></div>",
		"/throws.html": strings.Replace(string(well), "core.timer = setTimeout",
			"throw new Error('not today'); core.timer = setTimeout", 1),
		"/nan.html": strings.Replace(string(well), "i === wanted ? 1 : i === (wanted + 1) % 3 ? 0.5 : -1", "NaN",
			1),
		"/infinite.html": strings.Replace(string(well), "i === wanted ? 1 : i === (wanted + 1) % 3 ? 0.5 : -1",
			"'much'", 1),
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, text)
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	env := func(t *testing.T, base, name string) *browsergym.Env {
		return play(t, browsergym.Options{Browser: b}, func(seed uint32) browsergym.Task {
			return &browsergym.MiniWoB{Name: name, Base: base, Seed: seed}
		})
	}
	t.Run("set-up", func(t *testing.T) {
		for name, want := range map[string]string{
			s.URL + "/missing":           "is no page of MiniWoB++",
			s.URL + "/no-goal":           "is no page of MiniWoB++",
			s.URL + "/no-core":           "is no page of MiniWoB++",
			s.URL + "/throws":            "not today",
			"http://127.0.0.1:1/nowhere": "net::ERR_",
			"file:///nowhere/task":       "net::ERR_FILE_NOT_FOUND",
		} {
			i := strings.LastIndexByte(name, '/') + 1
			t.Run(name[i:], func(t *testing.T) {
				t.Parallel()
				e := env(t, name[:i], name[i:])
				_, _, err := e.Reset(t.Context(), 1)
				if err == nil || !strings.Contains(err.Error(), want) ||
					!strings.Contains(err.Error(), "setting up miniwob."+name[i:]) {
					t.Errorf("error %v", err)
				}
			})
		}
	})
	for _, name := range []string{"nan", "infinite"} {
		e := env(t, s.URL+"/", name)
		r := step(t, e, "click('"+bidOf(t, reset(t, e, 1), "red")+"')")
		if r.Reward != 0 || !r.Terminated || r.Observation.LastError != "" {
			t.Errorf("%s: reward %v, terminated %v, %s", name, r.Reward, r.Terminated, r.Observation.LastError)
		}
	}
}

// slowJudge takes its time for a step.
type slowJudge struct{ browsergym.Openended }

func (s *slowJudge) Validate(ctx context.Context, page *cdp.Page, _ []browsergym.Message) (browsergym.Verdict, error) {
	return browsergym.Verdict{Info: map[string]any{}},
		page.Evaluate(ctx, "new Promise(done => setTimeout(done, 3000))", nil)
}

// TestBrowserDiesInEachPhase tests that the death of a browser is reported as such in every phase,
// and never as a failure of the agent.
func TestBrowserDiesInEachPhase(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<title>long</title>"+strings.Repeat("<p>x", 3000))
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	for name, action := range map[string]string{"reset": "", "action": "noop(5000)",
		"navigation": "goto('" + s.URL + "/slow')", "judging": "send_msg_to_user('x')"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := launch(t)
			page := s.URL
			if action == "" {
				page += "/slow"
			}
			e := play(t, browsergym.Options{Browser: b}, func(uint32) browsergym.Task {
				return &slowJudge{browsergym.Openended{URL: page}}
			})
			die := func() { time.AfterFunc(100*time.Millisecond, b.Kill) }
			start := time.Now()
			var err error
			if action == "" {
				die()
				_, _, err = e.Reset(t.Context(), 1)
			} else {
				reset(t, e, 1)
				start = time.Now()
				die()
				_, err = e.Step(t.Context(), action)
			}
			if !errors.Is(err, cdp.ErrClosed) {
				t.Errorf("error %v", err)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
}

// TestBrowserHangs: a step ends with its context, and so does what comes after it.
func TestBrowserHangs(t *testing.T) {
	b := launch(t)
	e, _, _ := open(t, browsergym.Options{Browser: b}, "<p>x")
	b.Signal(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, errors.New("the step's limit"))
	defer cancel()
	start := time.Now()
	if _, err := e.Step(ctx, "click('2')"); err == nil || !strings.Contains(err.Error(), "the step's limit") {
		t.Errorf("a step: %v", err)
	}
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
	b.Kill()
}
