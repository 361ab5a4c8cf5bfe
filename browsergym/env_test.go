package browsergym_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/obs"
)

func launch(t testing.TB) *cdp.Browser {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("needs a browser; set EVALRUN_TEST_BROWSER=1")
	}
	b, err := cdp.Launch(t.Context(), cdp.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// everything is a set of all actions that recordings use.
func everything(t testing.TB, o action.Options) *action.Set {
	t.Helper()
	o.Subsets = strings.Fields("chat infeas bid coord nav tab")
	s, err := action.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// play makes an environment of one task.
func play(t testing.TB, o browsergym.Options, task func(uint32) browsergym.Task) *browsergym.Env {
	t.Helper()
	if o.Actions == nil {
		o.Actions = everything(t, action.Options{})
	}
	if o.Context.ActionTimeout == 0 {
		o.Context.ActionTimeout = 20 * time.Second // half a second is nothing on a machine that runs all tests
	}
	if o.Context.Timeout == 0 {
		o.Context.Timeout = time.Minute // nor are a few, for a page to load
	}
	o.Task = func(seed uint32) (browsergym.Task, error) { return task(seed), nil }
	e, err := browsergym.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

func pages(t testing.TB) string {
	s := httptest.NewServer(http.FileServer(http.Dir("testdata")))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL + "/"
}

func reset(t testing.TB, e *browsergym.Env, seed uint32) *browsergym.Observation {
	t.Helper()
	o, _, err := e.Reset(t.Context(), seed)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func step(t testing.TB, e *browsergym.Env, action string) *browsergym.Result {
	t.Helper()
	r, err := e.Step(t.Context(), action)
	if err != nil {
		t.Fatalf("%s: %v", action, err)
	}
	return r
}

func axText(t testing.TB, o *browsergym.Observation) string {
	t.Helper()
	s, err := obs.AXText(o.AX, o.Properties, obs.DefaultAX())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bidOf is the bid of the button of a name.
func bidOf(t testing.TB, o *browsergym.Observation, name string) string {
	t.Helper()
	for line := range strings.Lines(axText(t, o)) {
		if before, _, ok := strings.Cut(line, "] button '"+name+"'"); ok {
			return strings.TrimSpace(before)[1:]
		}
	}
	t.Fatalf("no button %q in\n%s", name, axText(t, o))
	return ""
}

func TestMiniWoB(t *testing.T) {
	b, base := launch(t), pages(t)
	colours := []string{"red", "green", "blue"}
	for _, pace := range []browsergym.Pace{browsergym.Fast, browsergym.Reference} {
		for seed := range uint32(3) {
			var least float64
			e := play(t, browsergym.Options{Browser: b, Pace: pace}, func(seed uint32) browsergym.Task {
				return &browsergym.MiniWoB{Name: "press-it", Base: base, Seed: seed, AtLeast: least}
			})
			// right, half right, wrong, half right where that is not enough
			for off, want := range []float64{1, 1, 0, 0} {
				if off == 3 {
					least, off = 1, 1
				}
				o := reset(t, e, seed)
				colour := strings.TrimSuffix(strings.TrimPrefix(o.Goal, "Press "), ".")
				wanted := slices.Index(colours, colour)
				if wanted < 0 {
					t.Fatalf("goal %q", o.Goal)
				}
				if text := axText(t, o); strings.Contains(text, "Press") || strings.Contains(text, "Reward") {
					t.Errorf("the goal or the reward is on the page:\n%s", text)
				}
				if n := len(o.Chat); n != 2 || o.Chat[1].Text != o.Goal || o.Chat[1].Role != browsergym.User {
					t.Errorf("chat %v", o.Chat)
				}
				img, err := png.Decode(bytes.NewReader(o.Screenshot))
				if err != nil || img.Bounds().Dx() != 498 || img.Bounds().Dy() != 321 {
					t.Errorf("screenshot %v, %v", img.Bounds(), err)
				}
				bid := bidOf(t, o, colours[(wanted+off)%3])
				before := step(t, e, "noop(1)")
				if before.Terminated || before.Reward != 0 {
					t.Errorf("done before anything was: %+v", before)
				}
				var r *browsergym.Result
				if off == 0 { // by place, which is in pixels of the screenshot
					x, _ := o.Properties.Get(bid)
					r = step(t, e, fmt.Sprintf("mouse_click(%v, %v)", x.Box[0]+x.Box[2]/2, x.Box[1]+x.Box[3]/2))
				} else {
					r = step(t, e, fmt.Sprintf("click('%s')", bid))
				}
				if r.Observation.LastError != "" || !r.Terminated || r.Reward != want {
					t.Errorf("reward %v, want %v; done %v; %s", r.Reward, want, r.Terminated, r.Observation.LastError)
				}
			}
			o := reset(t, e, seed)
			if r := step(t, e, "noop(1)"); r.Info.Task[browsergym.Reloaded] != nil {
				t.Errorf("the same page: %+v", r.Info)
			}
			if r := step(t, e, "goto('"+o.URL+"')"); r.Terminated || r.Info.Task[browsergym.Reloaded] != true {
				t.Errorf("the page once more: %+v", r.Info)
			}
			o = reset(t, e, seed)
			if r := step(t, e, "goto('"+o.URL+"?seed=1')"); !r.Terminated || r.Reward != 0 ||
				r.Info.Task["error"] != "invalid url, terminating task" {
				t.Errorf("another seed: %+v", r.Info)
			}
			o = reset(t, e, seed)
			if r := step(t, e, "goto('"+o.URL+"#x')"); !r.Terminated ||
				r.Info.Task["error"] != "invalid url, terminating task" {
				t.Errorf("another address: %+v", r.Info)
			}
			if r := step(t, e, "new_tab()"); !r.Terminated ||
				r.Info.Task["error"] != "invalid page, terminating task" || len(r.Observation.URLs) != 2 ||
				r.Observation.Active != 1 {
				t.Errorf("another page: %+v", r.Info)
			}
		}
	}
	if _, _, err := play(t, browsergym.Options{Browser: b}, func(uint32) browsergym.Task {
		return &browsergym.MiniWoB{Name: "none", Base: base}
	}).Reset(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "is no page of MiniWoB++") {
		t.Errorf("a page that is not there: %v", err)
	}
}

// Arguments of wrong types are said as the reference says them.
func TestArguments(t *testing.T) {
	b := launch(t)
	e := play(t, browsergym.Options{Browser: b, NoScreenshot: true}, func(uint32) browsergym.Task {
		return &browsergym.Openended{URL: `data:text/html,<title>t</title><input><button>b</button>`}
	})
	reset(t, e, 0)
	for _, c := range []struct{ action, want string }{
		{"scroll('a', 1)", "TypeError: unsupported operand type(s) for /: 'str' and 'float'"},
		{"mouse_click(None, 1)", "TypeError: unsupported operand type(s) for /: 'NoneType' and 'float'"},
		{"mouse_click(1, 1, 'x')", "Error: Mouse.click: button: expected one of (left|right|middle)"},
		{"mouse_click(1, 1, None)", ""},
		{"mouse_move(True, 1)", ""},
		{"tab_focus(1)", "IndexError: list index out of range"},
		{"tab_focus(-2)", "IndexError: list index out of range"},
		{"tab_focus(-1)", ""},
		{"tab_focus('0')", "TypeError: list indices must be integers or slices, not str"},
		{"keyboard_press(5)", "Error: Keyboard.press: key: expected string, got number"},
		{"keyboard_press('Foo')", `Error: Keyboard.press: Unknown key: "Foo"`},
		{"keyboard_type([1])", "Error: Keyboard.type: text: expected string, got object"},
		{"goto(5)", "Error: Page.goto: url: expected string, got number"},
		{"goto(None)", "TypeError: Frame.goto() missing 1 required positional argument: 'url'"},
		{"fill('4', 5, True)", "TypeError: object of type 'int' has no len()"},
		{"fill('4', 'ab', True)", ""},
		{"go_back(1)", "TypeError: go_back() takes 0 positional arguments but 1 was given"},
		{"noop(1.5e400)", "NameError: name 'inf' is not defined"},
	} {
		r := step(t, e, c.action)
		if got, _, _ := strings.Cut(r.Observation.LastError, "\n"); got != c.want {
			t.Errorf("%s: %q, want %q", c.action, got, c.want)
		}
	}
}

func TestChat(t *testing.T) {
	b := launch(t)
	said := 0
	o := browsergym.Options{Browser: b, NoScreenshot: true, Steps: 3, Ask: func(context.Context) (string, error) {
		if said++; said == 3 {
			return "exit", nil
		}
		return fmt.Sprint("message ", said), nil
	}}
	e := play(t, o, func(uint32) browsergym.Task { return &browsergym.Openended{URL: "about:blank"} })
	first := reset(t, e, 0)
	if len(first.Chat) != 2 || first.Chat[1].Text != "message 1" || first.Goal != "" {
		t.Errorf("chat %v", first.Chat)
	}
	if r := step(t, e, "send_msg_to_user('hello')"); r.Terminated || r.Truncated || len(r.Observation.Chat) != 4 {
		t.Errorf("%+v", r)
	}
	if r := step(t, e, "send_msg_to_user('and now?')"); !r.Terminated || r.Truncated {
		t.Errorf("%+v", r)
	}
	if r := step(t, e, "report_infeasible('no')"); !r.Terminated || !r.Truncated {
		t.Errorf("%+v", r)
	}
	if _, err := play(t, o, func(uint32) browsergym.Task { return nil }).Step(t.Context(), "noop()"); !errors.Is(err,
		browsergym.ErrNotReset) {
		t.Error(err)
	}
}

// meddler opens pages while it judges.
type meddler struct{ browsergym.Openended }

func (m *meddler) Validate(ctx context.Context, page *cdp.Page, _ []browsergym.Message) (browsergym.Verdict, error) {
	p, err := page.Context().NewPage(ctx)
	if err == nil {
		err = p.Close(ctx)
	}
	return browsergym.Verdict{Reward: 0.5, Message: "go on"}, err
}

func TestValidateLeavesNoTrace(t *testing.T) {
	b := launch(t)
	e := play(t, browsergym.Options{Browser: b, NoScreenshot: true}, func(uint32) browsergym.Task {
		return &meddler{browsergym.Openended{URL: "data:text/html,<title>mine</title>"}}
	})
	reset(t, e, 0)
	r := step(t, e, "noop(1)")
	if o := r.Observation; r.Reward != 0.5 || o.Active != 0 || len(o.URLs) != 1 || o.Titles[0] != "mine" ||
		o.Chat[len(o.Chat)-1].Text != "go on" {
		t.Errorf("%+v", r)
	}
}

// A browser that dies ends the episode with an error, not with an observation.
func TestBrowserDies(t *testing.T) {
	b := launch(t)
	e := play(t, browsergym.Options{Browser: b},
		func(uint32) browsergym.Task { return &browsergym.Openended{URL: "about:blank"} })
	reset(t, e, 0)
	b.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if r, err := e.Step(ctx, "goto('data:text/html,x')"); !errors.Is(err, cdp.ErrClosed) {
		t.Errorf("%v, %v", r, err)
	}
}
