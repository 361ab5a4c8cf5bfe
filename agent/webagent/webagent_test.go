package webagent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/agent/model/modeltest"
	"github.com/evalrun/evalrun/agent/webagent"
	"github.com/evalrun/evalrun/agent/webtext"
	"github.com/evalrun/evalrun/browsergym/action"
)

const (
	tree = `{"nodes":[{"nodeId":"1","role":{"value":"RootWebArea"},"name":{"value":"Shop"},"childIds":["2"],"browsergym_id":""},` +
		`{"nodeId":"2","role":{"value":"button"},"name":{"value":"Buy"},"browsergym_id":"12"}]}`
	props = `{"12":{"visibility":1,"bbox":[10,20,30,40],"clickable":true,"set_of_marks":true}}`
	dom   = `{"documents":[{"frameId":-1,"nodes":{"parentIndex":[-1,0,1],"nodeType":[9,1,1],"nodeName":[0,1,2],"nodeValue":[-1,-1,-1],"backendNodeId":[1,2,3],"attributes":[[],[],[3,4]],` +
		`"contentDocumentIndex":{"index":[],"value":[]},"isClickable":{"index":[]}},"layout":{"nodeIndex":[],"bounds":[],"clientRects":[]}}],"strings":["#document","HTML","BUTTON","bid","12"]}`
)

// shop is an environment of one page: click('12') ends it, any other click fails.
type shop struct {
	log   *agenttest.Log
	steps int
	chat  []event.BrowserChat
	dom   string // the page; "" is dom
}

func (s *shop) put(t *testing.T, kind, content string) *event.Blob {
	b, err := s.log.PutBlob(t.Context(), kind, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return &b
}

func picture(t *testing.T) string {
	var b strings.Builder
	if err := png.Encode(&b, image.NewRGBA(image.Rect(0, 0, 100, 80))); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (s *shop) step(t *testing.T) func(context.Context, event.Event) (event.Body, error) {
	return func(_ context.Context, e event.Event) (event.Body, error) {
		b, ok := e.Body.(event.Browse)
		if !ok {
			if i, ok := e.Body.(event.Invalid); ok {
				return event.Error{Text: i.Why}, nil
			}
			return event.Ack{Of: e.Body.Kind()}, nil
		}
		o := event.Browsed{
			URL: "http://shop/", Pages: []event.BrowserPage{{URL: "http://shop/", Title: "Shop"}}, Focused: "12",
			Action: b.Code, Elapsed: float64(e.ID),
		}
		if s.log != nil {
			o.AX, o.Properties, o.DOM = s.put(t, "application/json", tree), s.put(t, "application/json", props),
				s.put(t, "application/json", dom)
			if s.dom != "" {
				o.DOM = s.put(t, "application/json", s.dom)
			}
			o.Screenshot = s.put(t, "image/png", picture(t))
		}
		if b.Code != "" {
			s.steps++
			o.Step = s.steps
			o.Chat, s.chat = s.chat, nil
		}
		switch {
		case strings.Contains(b.Code, "click('12')"):
			o.Done = true
			return o, agent.ErrDone
		case strings.Contains(b.Code, "click"):
			o.Error = "TimeoutError: nothing there\nCall log:\n" + strings.Repeat("- waiting\n", 30)
		}
		return o, nil
	}
}

func setup(t *testing.T, o action.Options) (agenttest.Setup, *shop) {
	s := &shop{log: &agenttest.Log{}}
	set := agenttest.Setup{Goal: "Buy it.", Kinds: []string{"browse_interactive"}, Log: s.log, Step: s.step(t)}
	if len(o.Subsets) > 0 {
		tool, err := webtext.Tool(o)
		if err != nil {
			t.Fatal(err)
		}
		set.Tools = []agent.Tool{tool}
	}
	return set, s
}

// play runs the agent over a script.
func play(t *testing.T, cfg webagent.Config, set agenttest.Setup,
	replies ...string) ([]model.Request, agent.Answer, error) {
	t.Helper()
	var reqs []model.Request
	var script []model.Response
	for _, r := range replies {
		script = append(script, modeltest.Text(r))
	}
	next := modeltest.Script(script...)
	set.Model = modeltest.Func(func(ctx context.Context, b model.Binding, n int,
		req *model.Request) (*model.Response, error) {
		reqs = append(reqs, *req)
		return next(ctx, b, n, req)
	}).Client()
	a, err := webagent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ses := agenttest.NewSession(set)
	ans, err := a.Run(t.Context(), ses)
	if open := agenttest.LogOf(ses).Open(); len(open) > 0 {
		t.Errorf("actions without an observation: %v", open)
	}
	return reqs, ans, err
}

func TestSuite(t *testing.T) {
	agenttest.Run(t, agenttest.Suite{
		New: func(t *testing.T) agent.Agent {
			a, err := webagent.New(webagent.Config{})
			if err != nil {
				t.Fatal(err)
			}
			return a
		},
		Setup: func(t *testing.T) agenttest.Setup {
			set, _ := setup(t, action.Options{Subsets: []string{"bid"}})
			set.Model = modeltest.Func(func(context.Context, model.Binding, int,
				*model.Request) (*model.Response, error) {
				r := modeltest.Text("<action>click('12')</action>")
				return &r, nil
			}).Client()
			set.Step = (&shop{}).step(t) // the suite has logs of its own
			return set
		},
	})
}

func said(r model.Request) string { return event.PlainText(r.Messages[1].Parts) }

func has(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in:\n%s", w, text)
		}
	}
}

func hasNot(t *testing.T, text string, not ...string) {
	t.Helper()
	for _, w := range not {
		if strings.Contains(text, w) {
			t.Errorf("%q in:\n%s", w, text)
		}
	}
}

func TestPlays(t *testing.T) {
	set, shop := setup(t, action.Options{Subsets: []string{"miniwob_all"}, Single: true})
	shop.chat = []event.BrowserChat{{Role: "user", Text: "Be quick."}}
	reqs, ans, err := play(t, webagent.Config{}, set,
		"<think>the first <action>\n</think>\n<action>\nclick('7')\n</action>",
		"<think>now the right one</think><action>click('12')</action>")
	if err != nil || ans.GaveUp != "" || ans.Text() != "" {
		t.Fatalf("%+v, %v", ans, err)
	}
	if len(reqs) != 2 {
		t.Fatalf("%d requests", len(reqs))
	}
	first := said(reqs[0])
	has(t, first, "## Goal:\nBuy it.", "RootWebArea 'Shop'", "[12] button 'Buy', clickable, visible", "## HTML:",
		"<button bid=\"12\" clickable=\"\" visible=\"\">", "bid='12'",
		"11 kinds of actions", "mouse_dblclick(x: float", "# Abstract Example", "# Concrete Example", "<think>")
	hasNot(t, first, "open tabs", "send_msg_to_user", "# History", "Error from", "dblclick(bid", "<plan>",
		"Several calls")
	second := said(reqs[1])
	has(t, second, "## step 0\n\n<think>\nthe first <action>\n</think>\n\n<action>\nclick('7')\n</action>",
		"## Error from previous action:\nTimeoutError: nothing there", "user said since:\n- Be quick.")
	if n := strings.Count(second, "- waiting"); n != 10 {
		t.Errorf("%d lines of the call log", n)
	}
	if len(reqs[1].Messages) != 2 || reqs[0].Messages[0].Role != model.System || len(reqs[0].Tools) != 0 {
		t.Errorf("messages %+v", reqs[1].Messages)
	}
	var codes []string
	for _, e := range shop.log.All() {
		if b, ok := e.Body.(event.Browse); ok {
			codes = append(codes, b.Code)
		}
	}
	if fmt.Sprint(codes) != "[ click('7') click('12')]" {
		t.Errorf("actions %q", codes)
	}
}

func TestAsksAgain(t *testing.T) {
	set, _ := setup(t, action.Options{Subsets: []string{"bid"}, Single: true})
	reqs, ans, err := play(t, webagent.Config{}, set,
		"I would click.", "<action>goto('x')</action>", "<action>click('1') click('2')</action>",
		"```python\nclick('12')\n```")
	if err != nil || ans.GaveUp != "" {
		t.Fatalf("%+v, %v", ans, err)
	}
	msgs := reqs[3].Messages
	if len(msgs) != 8 {
		t.Fatalf("%d messages", len(msgs))
	}
	has(t, event.PlainText(msgs[3].Parts), "no <action>", "Answer again")
	has(t, event.PlainText(msgs[5].Parts), "NameError: Invalid action type 'goto'.")
	has(t, event.PlainText(msgs[7].Parts), "multi-action")

	set, _ = setup(t, action.Options{Subsets: []string{"bid"}})
	_, ans, err = play(t, webagent.Config{MaxRetry: ptr(1)}, set, "no", "no")
	if err != nil || !strings.Contains(ans.GaveUp, "no valid action in 2 answers") {
		t.Errorf("%+v, %v", ans, err)
	}
	for _, never := range []int{0, -1} {
		set, _ = setup(t, action.Options{Subsets: []string{"bid"}})
		if reqs, ans, err = play(t, webagent.Config{MaxRetry: ptr(never)}, set, ""); err != nil || ans.GaveUp == "" ||
			len(reqs) != 1 {
			t.Errorf("max_retry %d: %+v, %v, %d requests", never, ans, err, len(reqs))
		}
	}
}

// The previous action's error is shown even if the action was never executed or the page was
// observed since.
func TestPreviousError(t *testing.T) {
	set, _ := setup(t, action.Options{Subsets: []string{"bid"}})
	step, n := set.Step, 0
	set.Step = func(ctx context.Context, e event.Event) (event.Body, error) {
		if b, ok := e.Body.(event.Browse); ok && b.Code != "" {
			if n++; n == 2 {
				return event.Error{Text: "not executed: too late"}, nil
			}
		}
		return step(ctx, e)
	}
	reqs, _, err := play(t, webagent.Config{}, set, "<action>click('7')</action>", "none",
		"<action>hover('7')</action>", "<action>hover('12')</action>", "<action>click('12')</action>")
	if err != nil || len(reqs) != 5 {
		t.Fatalf("%d requests, %v", len(reqs), err)
	}
	const failed = "## Error from previous action:\n"
	has(t, said(reqs[1]), failed+"TimeoutError: nothing there")
	has(t, said(reqs[2]), failed+"TimeoutError: nothing there") // asked again: the same page, after the same action
	has(t, said(reqs[3]), failed+"not executed: too late")
	hasNot(t, said(reqs[3]), "nothing there")
	hasNot(t, said(reqs[4]), failed)
}

func TestAnswer(t *testing.T) {
	set, _ := setup(t, action.Options{Subsets: []string{"chat", "bid"}})
	_, ans, err := play(t, webagent.Config{}, set, `<action>send_msg_to_user("4")</action>`,
		"<action>send_msg_to_user('it\\'s 5')</action>", "<action>click('12')</action>")
	if err != nil || ans.Text() != "it's 5" {
		t.Errorf("%+v, %v", ans, err)
	}
}

// Where the browser is no part of the task, what is said to the user is the answer.
func TestAnswerAlone(t *testing.T) {
	set, s := setup(t, action.Options{})
	reqs, ans, err := play(t, webagent.Config{}, set, "<action>hover('3')</action>",
		"<action>click('7')\nsend_msg_to_user('5')</action>", "<action>send_msg_to_user('6')</action>")
	if err != nil || ans.Text() != "6" || ans.GaveUp != "" || s.steps != 1 {
		t.Errorf("%+v, %v, %d steps", ans, err, s.steps)
	}
	has(t, said(reqs[0]), "send_msg_to_user(text: str)")
	has(t, event.PlainText(reqs[2].Messages[3].Parts), "call it alone")
	set, _ = setup(t, action.Options{})
	if _, ans, err = play(t, webagent.Config{}, set,
		"<action>report_infeasible('no such page')</action>"); err != nil || ans.GaveUp != "no such page" {
		t.Errorf("%+v, %v", ans, err)
	}
}

func ptr[T any](v T) *T { return &v }

func TestOptions(t *testing.T) {
	do := []string{"<think>a</think><plan>first b</plan><memory>c</memory><action>click('1')</action>",
		"<action>click('12')</action>"}
	ask := func(t *testing.T, c webagent.Config, o action.Options) []model.Request {
		set, _ := setup(t, o)
		reqs, _, err := play(t, c, set, do...)
		if err != nil || len(reqs) != 2 {
			t.Fatalf("%d requests, %v", len(reqs), err)
		}
		return reqs
	}
	multi := action.Options{Subsets: []string{"chat", "infeas", "bid", "nav", "tab"}}
	t.Run("several calls", func(t *testing.T) {
		r := ask(t, webagent.Config{}, multi)
		has(t, said(r[0]), "Give several calls only", "Tab 0 (active tab):\n    Title: Shop\n    URL: http://shop/",
			"report_infeasible only")
		hasNot(t, said(r[0]), "## HTML")
		hasNot(t, said(r[1]), "first b", "<memory>")
	})
	t.Run("all off", func(t *testing.T) {
		off := ptr(false)
		r := ask(t, webagent.Config{AX: off, HTML: "full", Tabs: off, Focused: off, Errors: off, Visible: off,
			Clickable: off, History: off, Thinking: off, Hints: off, Cautious: off,
			Abstract: off, Concrete: off, System: "you", Instructions: "Mind the gap.",
			Subsets: []string{"miniwob_liu18"}}, multi)
		has(t, said(r[1]), "## HTML:", `<button bid="12">`, "between <action> and </action>", "3 kinds",
			"Mind the gap.")
		hasNot(t, said(r[1]), "AXTree", "open tabs", "Focused element", "Error from", "visible", "# History", "Advice",
			"Example\n\nAn", "Several tabs")
		if got := event.PlainText(r[0].Messages[0].Parts); got != "you" {
			t.Errorf("system %q", got)
		}
	})
	t.Run("plan and memory", func(t *testing.T) {
		r := ask(t, webagent.Config{Plan: true, Memory: true, Criticise: true, PastErrors: true, Descriptions: true,
			Examples: true, Coords: "center"}, multi)
		has(t, said(r[0]), "<plan>", "<step>", "<memory>", "<action_draft>", "<criticise>", "Click an element.",
			`center="(25,40)"`, "Examples:")
		has(t, said(r[1]), "first b", "<memory>\nc\n</memory>", "Its error: TimeoutError")
	})
	t.Run("screenshot", func(t *testing.T) {
		for _, kind := range []string{"plain", "marks"} {
			r := ask(t, webagent.Config{Screenshot: kind, Coords: "box"}, multi)
			parts := r[0].Messages[1].Parts
			last := parts[len(parts)-1]
			if last.Blob == nil || last.Blob.Type != "image/png" {
				t.Fatalf("%s: %+v", kind, last)
			}
			has(t, said(r[0]), "## Screenshot", `box="(10,20,40,60)"`)
		}
	})
	t.Run("only", func(t *testing.T) {
		r := ask(t, webagent.Config{OnlyVisible: true, OnlyMarked: true}, multi)
		has(t, said(r[0]), "[12] button 'Buy'", "Only what is visible")
	})
}

// Addresses are shown as BrowserGym shows them: what follows an & in a query is no character,
// whatever it is called.
func TestAddresses(t *testing.T) {
	const page = `{"documents":[{"frameId":-1,"nodes":{"parentIndex":[-1,0,1,2],"nodeType":[9,1,1,3],"nodeName":[0,1,2,7],"nodeValue":[-1,-1,-1,8],"backendNodeId":[1,2,3,4],` +
		`"attributes":[[],[],[3,4,5,6],[]],"contentDocumentIndex":{"index":[],"value":[]},"isClickable":{"index":[]}},"layout":{"nodeIndex":[],"bounds":[],"clientRects":[]}}],` +
		`"strings":["#document","HTML","A","bid","12","href","/list?page=2&region=us&order=asc&section=4","#text","Next"]}`
	for _, kind := range []string{"full", "pruned"} {
		set, shop := setup(t, action.Options{Subsets: []string{"bid"}})
		shop.dom = page
		off := false
		reqs, _, err := play(t, webagent.Config{HTML: kind, Visible: &off, Clickable: &off}, set,
			"<action>click('12')</action>")
		if err != nil || len(reqs) != 1 {
			t.Fatalf("%d requests, %v", len(reqs), err)
		}
		has(t, said(reqs[0]), `<a bid="12" href="/list?page=2&amp;region=us&amp;order=asc&amp;section=4">`)
	}
}

func TestRefuses(t *testing.T) {
	for want, c := range map[string]webagent.Config{
		"html: want one of":                   {HTML: "some"},
		"screenshot: want one of":             {Screenshot: "yes"},
		"coords: want one of":                 {Coords: "all"},
		`actions: there is no subset "all"`:   {Subsets: []string{"bid", "all"}},
		"max_prompt_tokens: want a number":    {MaxPromptTokens: -1},
		"from 1000 to 10000000, not 20":       {MaxPromptTokens: 20},
		"not 1000000000":                      {MaxPromptTokens: 1e9},
		"max_retry: want a number from 0":     {MaxRetry: ptr(-2)},
		"to 100, not 5000; leave it out for":  {MaxRetry: ptr(5000)},
		"instructions: 200000 bytes are":      {Instructions: strings.Repeat("x", 200_000)},
		"ax: false, with html: none and no":   {AX: ptr(false), HTML: "none"},
		"html: want one of auto, none, prune": {HTML: "x", Coords: "y"}, // with what else is wrong
	} {
		if _, err := webagent.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, not %s", c, err, want)
		}
	}
	a, _ := webagent.New(webagent.Config{})
	if _, err := a.Run(t.Context(), agenttest.NewSession(agenttest.Setup{Goal: "x"})); !errors.Is(err,
		webagent.ErrNoBrowser) {
		t.Errorf("without a browser: %v", err)
	}
	a, _ = webagent.New(webagent.Config{Screenshot: "marks"})
	set, _ := setup(t, action.Options{})
	set.Model = blind{modeltest.Script().Client()}
	if _, err := a.Run(t.Context(), agenttest.NewSession(set)); err == nil ||
		!strings.Contains(err.Error(), "takes no images") {
		t.Errorf("a model without eyes: %v", err)
	}
}

type blind struct{ model.Client }

func (blind) Info() model.Info { return model.Info{Name: "blind"} }

// A long page loses its end: the HTML's first, then the tree's as well.
func TestShrinks(t *testing.T) {
	set, s := setup(t, action.Options{Subsets: []string{"miniwob_all"}})
	var big struct {
		Nodes []map[string]any `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(tree), &big); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 3000 {
		id := fmt.Sprint(100 + i)
		ids = append(ids, id)
		big.Nodes = append(big.Nodes, map[string]any{"nodeId": id, "role": map[string]any{"value": "link"},
			"name": map[string]any{"value": "link number " + id}, "browsergym_id": id})
	}
	big.Nodes[0]["childIds"] = ids
	raw, _ := json.Marshal(big)
	step := set.Step
	set.Step = func(ctx context.Context, e event.Event) (event.Body, error) {
		b, err := step(ctx, e)
		if o, ok := b.(event.Browsed); ok {
			o.AX = s.put(t, "application/json", string(raw))
			return o, err
		}
		return b, err
	}
	reqs, _, err := play(t, webagent.Config{MaxPromptTokens: 8000}, set, "<action>click('12')</action>")
	if err != nil {
		t.Fatal(err)
	}
	has(t, said(reqs[0]), "lines to reduce prompt size.", "# Concrete Example", "link number 100")
	if n := len(said(reqs[0])) / 3; n > 8000 {
		t.Errorf("%d tokens", n)
	}

	set, s = setup(t, action.Options{Subsets: []string{"bid"}})
	step = set.Step
	set.Step = func(ctx context.Context, e event.Event) (event.Body, error) {
		b, err := step(ctx, e)
		if o, ok := b.(event.Browsed); ok {
			o.AX = s.put(t, "application/json", strings.Replace(tree, "Shop", strings.Repeat("no end ", 100_000), 1))
			return o, err
		}
		return b, err
	}
	if reqs, _, err = play(t, webagent.Config{}, set, "<action>click('12')</action>"); err != nil {
		t.Fatal(err)
	}
	if n := len(said(reqs[0])) / 3; n > 40_000 {
		t.Errorf("one line without end: %d tokens", n)
	}
	has(t, said(reqs[0]), "characters to reduce prompt size.")
}

// A resumed log leads to the same request as the session that wrote it.
func TestResumes(t *testing.T) {
	set, s := setup(t, action.Options{Subsets: []string{"bid"}})
	full, _, err := play(t, webagent.Config{}, set, "<think>x</think><action>hover('3')</action>", "none",
		"<action>click('12')</action>")
	if err != nil {
		t.Fatal(err)
	}
	old := s.log.All()
	cut := 0
	for i, e := range old {
		if m, ok := e.Body.(event.Message); ok && e.Source == event.FromEnvironment && len(m.Parts) > 0 {
			cut = i + 1 // all up to the question
		}
	}
	again, s2 := setup(t, action.Options{Subsets: []string{"bid"}})
	for _, e := range old[:cut] {
		if _, err := s2.log.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range old { // blobs are the run's, not the log's
		if b, ok := e.Body.(event.Browsed); ok {
			for _, x := range []*event.Blob{b.AX, b.DOM, b.Properties, b.Screenshot} {
				r, _ := s.log.OpenBlob(t.Context(), *x)
				raw, _ := io.ReadAll(r)
				s2.put(t, x.Type, string(raw))
			}
		}
	}
	reqs, _, err := play(t, webagent.Config{}, again, "<action>click('12')</action>")
	if err != nil {
		t.Fatal(err)
	}
	if reqs[0].Hash() != full[2].Hash() {
		t.Errorf("another request:\n%+v\n%+v", reqs[0], full[2])
	}
}
