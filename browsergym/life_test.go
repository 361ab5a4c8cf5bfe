package browsergym_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/browsergym/obs"
	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// visit opens an address within the context's own time limit, which tests set for a busy machine.
type visit struct{ browsergym.Openended }

func (v *visit) Setup(ctx context.Context, page *cdp.Page) (browsergym.Start, error) {
	return browsergym.Start{Goal: v.Goal, Info: map[string]any{}}, page.Goto(ctx, v.URL)
}

// open plays a page of some HTML.
func open(t testing.TB, o browsergym.Options, html string) (*browsergym.Env, *browsergym.Observation, string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/file"):
			w.Header().Set("Content-Disposition", `attachment; filename="a.txt"`)
			fmt.Fprint(w, "text")
		case strings.HasPrefix(r.URL.Path, "/slow"):
			select {
			case <-time.After(1500 * time.Millisecond):
			case <-r.Context().Done():
			}
			fmt.Fprint(w, "<title>slow</title>")
		case r.URL.Path == "/other":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<title>other</title><button>there</button>")
		default:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, html)
		}
	}))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	if o.Browser == nil {
		o.Browser = launch(t)
	}
	e := play(t, o, func(uint32) browsergym.Task {
		return &visit{browsergym.Openended{URL: s.URL + "/", Goal: browsergym.Text("look")}}
	})
	return e, reset(t, e, 0), s.URL
}

// text is the DOM as agents read it.
func text(t testing.TB, o *browsergym.Observation) string {
	t.Helper()
	s, err := obs.DOMText(o.DOM, o.Properties, obs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func firstLine(s string) string { s, _, _ = strings.Cut(s, "\n"); return s }

// A page is as it was after an observation, and an element keeps its bid.
func TestNoResidue(t *testing.T) {
	const html = `<title>t</title><body aria-description="mine"><p aria-roledescription="own">p</p><button>b</button>` +
		`<script>customElements.define('x-y', class extends HTMLElement { constructor() { super(); this.attachShadow({mode: 'open'}).innerHTML = '<button>in</button>'; } });</script><x-y></x-y>`
	e, o, _ := open(t, browsergym.Options{NoScreenshot: true}, html)
	const left = `() => { const out = []; const walk = r => { for (const e of r.querySelectorAll('*')) { for (const n of ['aria-description', 'aria-roledescription'])
		if (e.hasAttribute(n)) out.push(e.tagName + ' ' + e.getAttribute(n)); if (e.shadowRoot) walk(e.shadowRoot); } }; walk(document); return out.join('|'); }`
	bids := strings.Join(o.Properties.Bids(), " ")
	for range 2 {
		var got string
		if err := o.Page.Call(t.Context(), left, &got); err != nil || got != "BODY mine|P own" {
			t.Errorf("left on the page: %q, %v", got, err)
		}
		o = step(t, e, "noop(0)").Observation
		if again := strings.Join(o.Properties.Bids(), " "); again != bids {
			t.Errorf("bids %s, before %s", again, bids)
		}
	}
}

// The flag of an infeasible task stays until the next reset; with GoOn it ends nothing.
func TestInfeasible(t *testing.T) {
	b := launch(t)
	for _, goOn := range []bool{false, true} {
		e, _, _ := open(t, browsergym.Options{Browser: b, NoScreenshot: true, GoOn: goOn}, "<title>t</title>")
		if r := step(t, e, "report_infeasible('no way')"); r.Terminated == goOn {
			t.Errorf("go on %v: %+v", goOn, r)
		}
		if r := step(t, e, "noop(0)"); r.Terminated == goOn {
			t.Errorf("the step after, go on %v: %+v", goOn, r)
		}
		if o := reset(t, e, 1); len(o.Chat) != 2 {
			t.Errorf("the chat begins anew: %v", o.Chat)
		}
		if r := step(t, e, "noop(0)"); r.Terminated {
			t.Error("a new episode is as the old one was")
		}
	}
}

// Of several calls those before the one that fails have been done; an unknown name rejects all of
// them.
func TestCallsInOrder(t *testing.T) {
	e, o, _ := open(t, browsergym.Options{NoScreenshot: true},
		`<title>t</title><input id=i><button onclick="document.title += '!'">go</button>`)
	in, b := "4", bidOf(t, o, "go")
	for _, x := range []struct{ action, want, title string }{
		{fmt.Sprintf("click('%s')\nclick()\nclick('%[1]s')", b),
			"TypeError: click() missing 1 required positional argument: 'bid'", "t!"},
		{fmt.Sprintf("click('%s')\nnothing()", b), "NameError: Invalid action type 'nothing'.", "t!"},
		{fmt.Sprintf("click('%s') click('77') click('%[1]s')", b), `ValueError: Could not find element with bid "77"`,
			"t!!"},
		{fmt.Sprintf("fill('%s', 'x', True)\npress('%[1]s', 'Control+a')\nkeyboard_press('Backspace')", in), "", "t!!"},
	} {
		r := step(t, e, x.action)
		if firstLine(r.Observation.LastError) != x.want || r.Observation.Titles[0] != x.title ||
			r.Observation.LastAction != x.action {
			t.Errorf("%s: %q, title %q", x.action, r.Observation.LastError, r.Observation.Titles[0])
		}
	}
	if !strings.Contains(text(t, step(t, e, "noop(0)").Observation), `id="i"`) {
		t.Error("the input has gone")
	}
}

func TestActionability(t *testing.T) {
	const html = `<title>t</title><style>#cover { position: fixed; left: 0; top: 0; width: 300px; height: 60px }</style>
		<input type=checkbox id=c style="position: absolute; left: 10px; top: 10px"><div id=cover></div>
		<button disabled style="position: absolute; top: 100px">off</button><button style="display: none">gone</button><button style="position: absolute; top: 3000px" onclick="document.title = 'far'">far</button>
		<a href="/slow" style="position: absolute; top: 140px">slow</a>`
	b := launch(t)
	for _, retry := range []bool{false, true} {
		set := everything(t, action.Options{Retry: retry})
		e, o, _ := open(t, browsergym.Options{Browser: b, NoScreenshot: true, Actions: set,
			Context: cdp.ContextOptions{ActionTimeout: 500 * time.Millisecond}}, html)
		bid := func(id string) string {
			for line := range strings.Lines(text(t, o)) {
				if strings.Contains(line, id) {
					_, after, _ := strings.Cut(line, `bid="`)
					s, _, _ := strings.Cut(after, `"`)
					return s
				}
			}
			t.Fatalf("no %s in\n%s", id, text(t, o))
			return ""
		}
		// click is done again where a busy machine has not brought it that far in the time that an
		// action has.
		click := func(bid string, ok func(error string) bool) string {
			got := ""
			for range 10 {
				if got = step(t, e, fmt.Sprintf("click('%s')", bid)).Observation.LastError; ok(got) {
					break
				}
			}
			return got
		}
		want := "TimeoutError: Locator.click: Timeout 500ms exceeded."
		covered := want
		if retry {
			covered = ""
		}
		is := func(got string) bool {
			return firstLine(got) == covered && (retry || strings.Contains(got, "intercepts pointer events"))
		}
		if got := click(bid(`id="c"`), is); !is(got) {
			t.Errorf("retry %v, covered: %q", retry, got)
		}
		is = func(got string) bool {
			return retry || firstLine(got) == want && strings.Contains(got, "element is not enabled")
		}
		if got := click(bid(`disabled`), is); !is(got) {
			t.Errorf("disabled: %q", got)
		}
		is = func(got string) bool {
			return retry && firstLine(got) == "Error: Locator.click: Element is not visible" || !retry &&
				strings.Contains(got, "element is not visible")
		}
		if got := click(bid(`display: none`), is); !is(got) {
			t.Errorf("retry %v, hidden: %q", retry, got)
		}
		if got := click(bidOf(t, o, "far"), func(got string) bool { return got == "" }); got != "" ||
			step(t, e, "noop(0)").Observation.Titles[0] != "far" {
			t.Errorf("off the screen: %q", got)
		}
		if !retry { // the click has been done though it is told to have taken too long
			r := step(t, e, fmt.Sprintf("click('%s')", bid(`href="/slow"`)))
			if firstLine(r.Observation.LastError) != want {
				t.Errorf("slow: %q", r.Observation.LastError)
			}
			title := ""
			for range 20 {
				if title = step(t, e, "noop(1000)").Observation.Titles[0]; title == "slow" {
					break
				}
			}
			if title != "slow" {
				t.Errorf("the click has led to %q", title)
			}
		}
	}
}

func TestPages(t *testing.T) {
	const html = `<title>first</title><button onclick="window.open('/other', '_blank', 'width=300,height=200')">small</button><button onclick="window.open('/other')">full</button>
		<button onclick="document.title = [confirm('a'), prompt('b'), alert('c')].join()">ask</button><a href="/file">get</a>`
	o := browsergym.Options{}
	o.Context.Downloads = t.TempDir()
	e, first, url := open(t, o, html)
	size := func(o *browsergym.Observation) string {
		c, err := png.DecodeConfig(bytes.NewReader(o.Screenshot))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%dx%d", c.Width, c.Height)
	}
	at := func(r *browsergym.Result, want string) {
		t.Helper()
		o := r.Observation
		if got := fmt.Sprint(o.Titles, o.Active, o.LastError, " ", size(o)); got != want {
			t.Errorf("%s: %s, want %s", o.LastAction, got, want)
		}
	}
	click := func(name string) string { return "click('" + bidOf(t, first, name) + "')" }
	at(step(t, e, click("ask")), "[false,,] 0 1280x720")
	at(step(t, e, click("small")), "[false,, other] 1 300x200")
	at(step(t, e, "tab_focus(0)"), "[false,, other] 0 1280x720")
	at(step(t, e, click("full")), "[false,, other other] 2 1280x720")
	// the last page in the order of their creation
	at(step(t, e, "tab_focus(0)\ntab_close()"), "[other other] 1 1280x720")
	at(step(t, e, "tab_close()"), "[other] 0 300x200")
	at(step(t, e, "tab_close()"), "[] 0 1280x720")
	r := step(t, e, "goto('"+url+"/file')")
	if got := firstLine(r.Observation.LastError); got != "Error: Page.goto: net::ERR_ABORTED at "+url+"/file" {
		t.Error(got)
	}
	if d := e.Context().Downloads(); len(d) != 1 || d[0].Name != "a.txt" {
		t.Errorf("downloads %+v", d)
	}
	reset(t, e, 0)
	at(step(t, e, "go_back()"), "[] 0 1280x720") // the empty page that every episode begins with
	at(step(t, e, "go_back()"), "[] 0 1280x720")
	at(step(t, e, "go_forward()"), "[first] 0 1280x720")
}

// What is done to a page in order to see when it is calm is not heard on its console, however the
// page came to be.
func TestNothingIsHeard(t *testing.T) {
	e, first, _ := open(t, browsergym.Options{NoScreenshot: true},
		`<title>t</title><a role="button" href="/other" target="_blank">link</a><a role="button" href="/other" target="_blank" rel="opener">friend</a>
		<button onclick="window.open('/other')">script</button><button onclick="window.open().location = '/other'">late</button><iframe src="/other"></iframe>`)
	for _, name := range []string{"link", "friend", "script", "late"} {
		if o := step(t, e, "click('"+bidOf(t, first, name)+"')").Observation; o.Titles[o.Active] != "other" {
			t.Errorf("%s: opened %q", name, o.Titles)
		}
		step(t, e, "tab_focus(0)")
		if said, _ := e.Context().Messages(); len(said) > 0 {
			t.Errorf("%s: %+v", name, said)
		}
	}
}

// Somebody else acts between Begin and Finish, and nobody judges.
func TestOtherHands(t *testing.T) {
	e, o, _ := open(t, browsergym.Options{NoScreenshot: true},
		`<title>t</title><button onclick="document.title = 'done'">b</button>`)
	info, err := e.Begin("by hand")
	if err != nil {
		t.Fatal(err)
	}
	x, err := o.Page.Find(t.Context(), bidOf(t, o, "b"))
	if err == nil {
		err = x.Click(t.Context(), cdp.Click{})
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Finish(t.Context(), info, false)
	if err != nil || r.Observation.Titles[0] != "done" || r.Observation.LastAction != "by hand" || r.Terminated ||
		r.Info.Task == nil {
		t.Errorf("%+v, %v", r, err)
	}
	if i := r.Info; i.ActionStart > i.ActionStop || i.LoadStart > i.LoadStop || i.LookStart > i.LookStop {
		t.Errorf("%+v", i)
	}
}

func TestRaw(t *testing.T) {
	e, o, _ := open(t, browsergym.Options{Raw: true}, `<title>t</title><button>b</button>`)
	if o.DOM != nil || o.AX != nil || o.Screenshot != nil || o.Page == nil || o.Titles[0] != "t" {
		t.Errorf("%+v", o)
	}
	if r := step(t, e, "click('4')"); r.Observation.LastError != `ValueError: Could not find element with bid "4"` {
		t.Errorf("elements are marked: %q", r.Observation.LastError)
	}
}

func TestCustomActions(t *testing.T) {
	set, err := action.New(action.Options{Subsets: []string{"custom"},
		Custom: []*action.Spec{{Name: "rename", Params: []action.Param{{Name: "to", Type: "str"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	o := browsergym.Options{NoScreenshot: true, Actions: set, Browser: opener(nil),
		Task: func(uint32) (browsergym.Task, error) { return nil, nil }}
	if _, err := browsergym.New(o); err == nil || !strings.Contains(err.Error(), "nobody does the action rename") {
		t.Errorf("an action that nobody does: %v", err)
	}
	o.Browser = nil
	o.Custom = map[string]func(context.Context, *cdp.Page, []pyrepr.Value) error{
		"rename": func(ctx context.Context, p *cdp.Page, args []pyrepr.Value) error {
			s, ok := args[0].(pyrepr.Str)
			if !ok {
				return &cdp.Failure{Kind: "ValueError", Text: "a title is a text"}
			}
			return p.Call(ctx, "s => { document.title = s; }", nil, string(s))
		}}
	e, _, _ := open(t, o, "<title>t</title>")
	if r := step(t, e, "rename('new')"); r.Observation.Titles[0] != "new" || r.Observation.LastError != "" {
		t.Errorf("%+v", r.Observation)
	}
	if r := step(t, e, "rename(5)"); r.Observation.LastError != "ValueError: a title is a text" {
		t.Error(r.Observation.LastError)
	}
}

type opener func()

func (opener) NewContext(context.Context, cdp.ContextOptions) (*cdp.Context, error) {
	return nil, errors.New("none")
}

// Without a viewport of its own a page is as large as its window, which scripts may make larger or
// smaller.
func TestWindow(t *testing.T) {
	o := browsergym.Options{}
	o.Context.NoViewport, o.Context.Width, o.Context.Height = true, 640, 480
	_, first, _ := open(t, o, "<title>t</title><p>p</p>")
	c, err := png.DecodeConfig(bytes.NewReader(first.Screenshot))
	if err != nil || c.Width != 640 || c.Height != 480 {
		t.Errorf("%dx%d, %v", c.Width, c.Height, err)
	}
}

// The default waits are the reference's; none at all can be asked for.
func TestNoDelay(t *testing.T) {
	b := launch(t)
	for _, pace := range []browsergym.Pace{browsergym.Fast, browsergym.Reference} {
		e, _, _ := open(t, browsergym.Options{Browser: b, NoScreenshot: true, Pace: pace, Delay: -1},
			"<title>t</title>")
		if r := step(t, e, "keyboard_press('a')"); r.Observation.LastError != "" || r.Observation.Titles[0] != "t" {
			t.Errorf("%+v", r.Observation)
		}
	}
}

// toucher wakes all pages while it judges.
type toucher struct{ browsergym.Openended }

func (x *toucher) Validate(ctx context.Context, page *cdp.Page, _ []browsergym.Message) (browsergym.Verdict, error) {
	all := page.Context().Pages()
	slices.Reverse(all)
	for _, p := range append(all, page) {
		if err := p.Report(ctx); err != nil {
			return browsergym.Verdict{}, err
		}
		if err := page.Context().Sync(ctx, time.Second); err != nil {
			return browsergym.Verdict{}, err
		}
	}
	return browsergym.Verdict{}, nil
}

// Which pages were active, and in what order, is the agent's doing alone.
func TestValidateLeavesHistory(t *testing.T) {
	e := play(t, browsergym.Options{Browser: launch(t), NoScreenshot: true}, func(uint32) browsergym.Task {
		return &toucher{browsergym.Openended{URL: "data:text/html,<title>0</title>"}}
	})
	reset(t, e, 0)
	step(t, e, "new_tab()\ngoto('data:text/html,<title>1</title>')")
	step(t, e, "new_tab()\ngoto('data:text/html,<title>2</title>')")
	step(t, e, "tab_focus(0)")
	if err := e.Context().Pages()[0].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o := step(t, e, "noop(0)").Observation; o.Active != 1 || o.Titles[1] != "2" {
		t.Errorf("page %d of %v is active", o.Active, o.Titles)
	}
}

// An episode's time is the page's own clock: it ends without a reward.
func TestMiniWoBTime(t *testing.T) {
	base := pages(t)
	e := play(t, browsergym.Options{Browser: launch(t), NoScreenshot: true}, func(seed uint32) browsergym.Task {
		return &browsergym.MiniWoB{Name: "press-it", Base: base, Seed: seed, Limit: 150 * time.Millisecond}
	})
	reset(t, e, 0)
	if r := step(t, e, "noop(300)"); !r.Terminated || r.Reward != 0 || r.Info.Task["RAW_REWARD_GLOBAL"] != -1.0 {
		t.Errorf("%+v", r)
	}
}
