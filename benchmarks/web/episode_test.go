package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// site is what the tests' pages are.
var site = fstest.MapFS{
	"index.html": {Data: []byte(`<title>Start</title><h1>Start</h1><button onclick="document.title='pressed'">Press</button>
		<a href="big.bin" download="big.bin">big</a> <a href="small.bin" download="../../small.bin">small</a>
		<script>console.log("hello"); console.log("a secret"); fetch("http://192.0.2.1/").catch(() => 0); throw new Error("oh")</script>`)},
	"small.bin": {Data: []byte("small")},
	"big.bin":   {Data: bytes.Repeat([]byte("x"), 1<<20)},
}

// host lends a log and nothing else.
type host struct{ log *agenttest.Log }

func (h host) Sandbox(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, errors.New("no machines")
}
func (h host) Model(string) (model.Client, error) { return nil, errors.New("no models") }
func (h host) Secret(string) (string, error)      { return "", errors.New("no secrets") }
func (h host) Log() event.Log                     { return h.log }
func (h host) Seed() uint64                       { return 1 }

// task is done when the title says so, or the agent has sent something.
type task struct{}

func (task) Settings() browsergym.Settings { return browsergym.Settings{Width: 400, Height: 300} }
func (task) Setup(ctx context.Context, p *cdp.Page) (browsergym.Start, error) {
	return browsergym.Start{Goal: []browsergym.Item{{Type: "text", Text: "Press it."},
		{Type: "image_url", Image: "data:image/png;base64,aGVsbG8="},
		{Type: "image_url", Image: "http://example.com/a.png"}}}, p.Goto(ctx, web.SiteURL)
}
func (task) Teardown(context.Context) error { return nil }
func (task) Validate(ctx context.Context, p *cdp.Page, chat []browsergym.Message) (browsergym.Verdict, error) {
	v := browsergym.Verdict{Info: map[string]any{"RAW_REWARD_GLOBAL": 0.25}}
	switch title, _ := p.Title(ctx); title {
	case "pressed":
		v.Reward, v.Done = 1, true
	case "throws":
		if err := p.Call(ctx, "() => { throw new Error('no reward for you') }", nil); err != nil {
			return v, fmt.Errorf("reading the reward: %w", err)
		}
	case "nan":
		v.Reward = math.NaN()
	}
	if last := chat[len(chat)-1]; last.Role == browsergym.Assistant {
		v.Done = true
		if last.Text == "42 'and' \"more\"" {
			v.Reward = 0.5
		}
	}
	return v, nil
}

// begin opens an episode on the site.
func begin(t *testing.T, change func(*web.Config)) (*web.Episode, *benchmarks.Stage, *agenttest.Log, *browsers.Pool) {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("no browser for tests (EVALRUN_TEST_BROWSER=1)")
	}
	p := browsers.New(browsers.Options{})
	t.Cleanup(func() { p.Close() })
	s := web.Serve(site)
	log := &agenttest.Log{}
	c := web.Config{Host: host{log}, Task: func(uint32) (browsergym.Task, error) { return task{}, nil }, Close: s.Close,
		Actions: action.Options{Subsets: []string{"chat", "infeas", "bid", "nav", "tab"}}}
	if err := (web.Browsers{Pool: p}).Configure(&c, s.AccessOptions()); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&c)
	}
	e, err := web.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error("closed again:", err)
		}
	})
	stage, err := e.Next(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Next(t.Context(), nil); err != io.EOF {
		t.Errorf("a second stage: %v", err)
	}
	return e, stage, log, p
}

func act(t *testing.T, e *web.Episode, body event.Body) (event.Browsed, benchmarks.Turn) {
	t.Helper()
	turn, err := e.Step(t.Context(), event.New(event.FromAgent, body))
	if err != nil {
		t.Fatal(err)
	}
	o, ok := turn.Obs.(event.Browsed)
	if !ok {
		t.Fatalf("%+v", turn.Obs)
	}
	return o, turn
}

func read(t *testing.T, log *agenttest.Log, b *event.Blob) []byte {
	t.Helper()
	if b == nil {
		t.Fatal("there is no blob")
	}
	r, err := log.OpenBlob(t.Context(), *b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// collect gathers the evidence and its score.
func collect(t *testing.T, e *web.Episode, ans agent.Answer) (web.End, float64) {
	t.Helper()
	ev, err := e.Collect(t.Context(), ans)
	if err != nil {
		t.Fatal(err)
	}
	r, err := web.Grade(ev)
	if err != nil {
		t.Fatal(err)
	}
	var end web.End
	if err := json.Unmarshal(ev.Data, &end); err != nil {
		t.Fatal(err)
	}
	return end, *r.Primary().Value
}

// bid is the mark of the first element whose line of HTML has a text.
func bid(t *testing.T, log *agenttest.Log, o event.Browsed, text string) string {
	t.Helper()
	var ax struct {
		Nodes []struct {
			Name  struct{ Value any }
			BID   string `json:"browsergym_id"`
			Props []any
		}
	}
	if err := json.Unmarshal(read(t, log, o.AX), &ax); err != nil {
		t.Fatal(err)
	}
	for _, n := range ax.Nodes {
		if n.Name.Value == text && n.BID != "" {
			return n.BID
		}
	}
	t.Fatalf("nothing is called %q", text)
	return ""
}

func TestEpisode(t *testing.T) {
	e, stage, log, _ := begin(t, func(c *web.Config) {
		c.Steps, c.Record.SOM = 4, true
		c.Hide = func(m event.BrowserLog) bool { return strings.Contains(m.Text, "secret") }
	})
	if g := stage.Goal; len(g.Parts) != 3 || g.Parts[0].Text != "Press it." || g.Parts[1].Blob == nil ||
		string(read(t, log, g.Parts[1].Blob)) != "hello" || g.Parts[2].Text != "Image: http://example.com/a.png" {
		t.Errorf("the goal is %+v", g)
	}
	if len(stage.Tools) != 1 || stage.Tools[0].Browser == nil || !stage.Last {
		t.Errorf("the stage is %+v", stage)
	}
	o, turn := act(t, e, event.Browse{})
	if turn.Reward != nil || turn.Info != nil || turn.Done || o.Step != 0 || o.URL != web.SiteURL || len(o.Chat) != 4 ||
		len(o.Pages) != 1 || o.Pages[0].Title != "Start" {
		t.Errorf("the first look: %+v, %+v", o, turn)
	}
	said := fmt.Sprint(o.Log)
	if !strings.Contains(said, "hello") || !strings.Contains(said, "oh") || strings.Contains(said, "secret") {
		t.Errorf("what the page has said: %s", said)
	}
	for _, b := range []*event.Blob{o.Screenshot, o.Marks} {
		if _, err := png.Decode(bytes.NewReader(read(t, log, b))); err != nil {
			t.Error(err)
		}
	}
	again, _ := act(t, e, event.Browse{Code: " \n"})
	if len(again.Chat)+len(again.Log) != 0 || *again.AX != *o.AX || *again.DOM != *o.DOM ||
		*again.Screenshot != *o.Screenshot {
		t.Errorf("the second look: %+v", again)
	}
	if wrong, turn := act(t, e, event.Browse{Code: "click('nothing')"}); !strings.Contains(wrong.Error,
		`Could not find element with bid "nothing"`) || wrong.Step != 1 || turn.Done || *turn.Reward != 0 {
		t.Errorf("what is not there: %+v", wrong)
	}
	if x, _ := act(t, e, event.BrowseURL{URL: "http://127.0.0.1/small.bin?"}); x.Step != 2 ||
		!strings.HasPrefix(x.Action, "goto(") {
		t.Errorf("an address: %+v", x)
	}
	if turn, err := e.Step(t.Context(), event.New(event.FromAgent, event.Run{Command: "ls"})); err != nil ||
		turn.Obs.Kind() != "error" {
		t.Errorf("a command: %+v, %v", turn, err)
	}
	o, _ = act(t, e, event.Browse{Code: "goto('" + web.SiteURL + "')"})
	o, turn = act(t, e, event.Browse{Code: "click('" + bid(t, log, o, "Press") + "')"})
	var info struct {
		Cumulative float64
		Raw        *float64 `json:"raw_reward"`
		Terminated bool
		Truncated  bool
		Timing     map[string]float64
	}
	if err := json.Unmarshal(turn.Info, &info); err != nil {
		t.Fatal(err)
	}
	if !turn.Done || !o.Done || *turn.Reward != 1 || info.Cumulative != 1 || info.Raw == nil || *info.Raw != 0.25 ||
		!info.Terminated || !info.Truncated || len(info.Timing) < 9 {
		t.Errorf("the last step: %+v, %s", o, turn.Info)
	}
	if after, turn := act(t, e, event.Browse{Code: "goto('" + web.SiteURL + "')"}); after.Step != 4 || !turn.Done ||
		turn.Reward != nil {
		t.Errorf("a step after the end: %+v", after)
	}
	end, score := collect(t, e, agent.Answer{Parts: event.Text("an answer that nobody waits for")})
	if score != 1 || end.Steps != 4 || !end.Terminated || end.Truncated || end.Sent || len(end.Refused) == 0 {
		t.Errorf("%v, %+v", score, end)
	}
}

func TestAnswers(t *testing.T) {
	text := agent.Answer{Parts: event.Text("42 'and' \"more\"")}
	for name, x := range map[string]struct {
		code   string
		answer bool
		ans    agent.Answer
		score  float64
		end    string
	}{
		"sent at the end":   {"noop(10)", true, text, 0.5, `["42 'and' \"more\""] true  2`},
		"none is wanted":    {"noop(10)", false, text, 0, `[] false  1`},
		"sent by the agent": {"send_msg_to_user('no')", true, text, 0, `["no"] false  1`},
		"given up":          {"noop(10)", true, agent.Answer{GaveUp: "it's \"shut\""}, 0, `[] true it's "shut" 2`},
		"nothing said":      {"noop(10)", true, agent.Answer{}, 0, `[] false  1`},
	} {
		t.Run(name, func(t *testing.T) {
			e, _, _, _ := begin(t, func(c *web.Config) { c.Answer = x.answer })
			act(t, e, event.Browse{Code: x.code})
			end, score := collect(t, e, x.ans)
			if end.Answers == nil {
				end.Answers = []string{}
			}
			said, _ := json.Marshal(end.Answers)
			if got := fmt.Sprintf("%s %v %s %d", said, end.Sent, end.Infeasible, end.Steps); score != x.score ||
				got != x.end {
				t.Errorf("%v, %s", score, got)
			}
		})
	}
}

func TestTruncated(t *testing.T) {
	e, _, _, _ := begin(t, func(c *web.Config) { c.Steps = 2 })
	act(t, e, event.Browse{Code: "noop(10)"})
	if o, turn := act(t, e, event.Browse{Code: "noop(10)"}); !turn.Done || !o.Done {
		t.Errorf("%+v", o)
	}
	if end, score := collect(t, e, agent.Answer{}); !end.Truncated || score != 0 {
		t.Errorf("%+v", end)
	}
}

func TestDownloads(t *testing.T) {
	e, _, log, _ := begin(t, func(c *web.Config) { c.Record.DownloadLimit = 64 << 10 })
	o, _ := act(t, e, event.Browse{})
	got := map[string]event.BrowserDownload{}
	for _, name := range []string{"small", "big"} {
		x, _ := act(t, e, event.Browse{Code: "click('" + bid(t, log, o, name) + "')"})
		for range 20 {
			for _, d := range x.Downloads {
				got[d.URL[strings.LastIndex(d.URL, "/")+1:]] = d
			}
			if got[name+".bin"].URL != "" {
				break
			}
			x, _ = act(t, e, event.Browse{Code: "noop(100)"})
		}
	}
	if d := got["small.bin"]; d.State != "completed" || d.Blob == nil || string(read(t, log, d.Blob)) != "small" {
		t.Errorf("small: %+v", d)
	}
	if d := got["big.bin"]; d.State != "canceled" || d.Blob != nil {
		t.Errorf("big: %+v", d)
	}
}

// A browser that dies is nobody's score; a page that does is the episode's end.
func TestDeath(t *testing.T) {
	t.Run("browser", func(t *testing.T) {
		e, _, _, p := begin(t, nil)
		p.Close()
		if _, err := e.Step(t.Context(), event.New(event.FromAgent, event.Browse{Code: "noop(10)"})); err == nil ||
			!browsers.Infra(err) {
			t.Errorf("the browser is gone: %v", err)
		}
	})
	t.Run("page of the browser itself", func(t *testing.T) {
		e, _, _, _ := begin(t, nil)
		o, turn := act(t, e, event.Browse{Code: "goto('chrome://crash')"})
		if !strings.Contains(o.Error, "ERR_BLOCKED_BY_CLIENT") || turn.Done {
			t.Errorf("%q, %v", o.Error, turn.Done)
		}
	})
	for name, page := range map[string]string{
		"page that throws when it is judged": "data:text/html,<title>throws</title>",
		"page whose reward is no number":     "data:text/html,<title>nan</title>",
		"page that hangs":                    "data:text/html,<script>setTimeout(() => { while (true); }, 50)</script>",
		"page that crashes": "data:text/html,<script>const a = []; while (true) a.push(new " +
			"Array(1e6).fill(a.length));</script>",
	} {
		t.Run(name, func(t *testing.T) {
			e, _, _, _ := begin(t, nil)
			a := event.New(event.FromAgent, event.Browse{Code: "goto('" + page + "')\nnoop(500)"})
			a.Timeout = 30 * time.Second // that of the harness
			if strings.Contains(name, "hangs") {
				a.Timeout = 5 * time.Second
			}
			turn, err := e.Step(t.Context(), a)
			if err != nil || !turn.Done || turn.Reward == nil || *turn.Reward != 0 {
				t.Fatalf("%+v, %v: an agent would have another try", turn, err)
			}
			ev, err := e.Collect(t.Context(), agent.Answer{})
			if err != nil {
				t.Fatal(err)
			}
			if r, err := web.Grade(ev); err != nil || !slices.Contains(r.Flags, web.FlagPage) ||
				*r.Primary().Value != 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	t.Run("set-up", func(t *testing.T) {
		if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
			t.Skip("no browser for tests (EVALRUN_TEST_BROWSER=1)")
		}
		p := browsers.New(browsers.Options{})
		defer p.Close()
		closed := false
		c := web.Config{Host: host{&agenttest.Log{}}, Close: func() error { closed = true; return nil },
			Task: func(uint32) (browsergym.Task, error) { return task{}, nil }}
		// which does not reach the site
		if err := (web.Browsers{Pool: p}).Configure(&c, browsers.AccessOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := web.Open(t.Context(), c); err == nil || !closed || p.Stats().Contexts != 0 {
			t.Errorf("%v, closed %v, %+v", err, closed, p.Stats())
		}
	})
}
