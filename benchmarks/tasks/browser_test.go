package tasks_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/tasks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym/browsers"
)

// realBrowsers are those of this machine. The test is skipped with the reason unless
// EVALRUN_TEST_BROWSER is set.
func realBrowsers(t *testing.T) web.Browsers {
	t.Helper()
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("needs a browser; set EVALRUN_TEST_BROWSER=1")
	}
	p := browsers.New(browsers.Options{})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return web.Browsers{Pool: p}
}

func TestBrowserErrors(t *testing.T) {
	page := "x/index.html"
	for name, c := range map[string]struct{ text, want string }{
		"keys": {`
- id: a
  instruction: x
  browser: {sight: x, viewport: wide, scale: big, seed: -1, steps: many}
  grade: {sucess: "true"}
`, `bad tasks.yaml:4:13: task "a": tasks[0].browser.sight: unknown key; known: start, site, contract, viewport, scale, steps, seed, actions, locale, timezone
  tasks.yaml:4:33: tasks[0].browser.viewport: viewport "wide"; want width and height, such as 1280x720
  tasks.yaml:4:46: tasks[0].browser.scale: expected a number, found "big"
  tasks.yaml:4:57: tasks[0].browser.seed: expected a whole number from 0 on, found -1
  tasks.yaml:4:68: tasks[0].browser.steps: expected a whole number, found "many"
  tasks.yaml:5:11: tasks[0].grade.sucess: unknown key; did you mean "success"?`},
		"nothing": {"- {id: a, browser: {}}",
			"bad tasks.yaml:1:3: task \"a\": no instruction\n  tasks.yaml:1:3: tasks[0]: it is not graded; want " +
				"grade.success, grade.url or answer\n  tasks.yaml:1:20: tasks[0].browser: start \"index.html\" is a " +
				"page of the site, and there is no site; an address begins with https:// or http://"},
		"a machine": {"- {id: a, instruction: x, answer: 1, browser: {site: x}, setup: ls, files: {b: c}}",
			`bad tasks.yaml:1:47: task "a": tasks[0].browser: the task has no machine, and one stage, so stages, files, setup and leave do not go with it; pages belong into browser.site`},
		"a script": {"- {id: a, instruction: x, browser: {site: x}, grade: {script: ls, success: 'true'}, " +
			"oracle: ls}", "bad tasks.yaml:1:54: task \"a\": tasks[0].grade: function, script, files, collect and " +
			"shared need a machine; in a browser there are success, url and answer\n  tasks.yaml:1:93: " +
			"tasks[0].oracle: there is no machine for a script; want {actions: […], answer: …}"},
		"no browser": {"- {id: a, instruction: x, grade: {success: 'true'}, oracle: {actions: [noop()]}}",
			"bad tasks.yaml:1:3: task \"a\": grade.success, grade.url and an oracle's actions and take are of tasks " +
				"in a browser; add browser\n  tasks.yaml:1:3: tasks[0]: it is graded in 0 ways; want one of " +
				"grade.script, grade.function and answer"},
		"numbers": {"- {id: a, instruction: x, answer: 1, network: public, browser: {site: x, start: " +
			"['http://0x7f.1/', 'http://2130706433/', 'http://localhost/', 'http://[::ffff:127.0.0.1]/', " +
			"'https://example.org/']}}",
			"bad tasks.yaml:1:64: task \"a\": tasks[0].browser: start \"http://0x7f.1/\": the host 0x7f.1 is neither " +
				"a name nor an address in its usual form, such as 127.0.0.1\n  tasks.yaml:1:64: tasks[0].browser: " +
				"start \"http://2130706433/\": the host 2130706433 is neither a name nor an address in its usual " +
				"form, such as 127.0.0.1\n  tasks.yaml:1:64: tasks[0].browser: start \"http://localhost/\": the " +
				"task's network does not lead there (a loopback address); name it: network: [127.0.0.1]\n  " +
				"tasks.yaml:1:64: tasks[0].browser: start \"http://[::ffff:127.0.0.1]/\": the task's network does " +
				"not lead there (a loopback address); name it: network: [::ffff:127.0.0.1]"},
		"pages": {"- {id: a, instruction: x, answer: 1, browser: {site: x, start: [../up.html, gone.html, " +
			"'file:///etc/passwd', 'https://example.org/']}}",
			"bad tasks.yaml:1:47: task \"a\": tasks[0].browser: start \"../up.html\" leaves the site\n  " +
				"tasks.yaml:1:47: tasks[0].browser: start \"file:///etc/passwd\": only pages at http:// and https:// " +
				"can be opened\n  tasks.yaml:1:47: tasks[0].browser: start \"https://example.org/\": the task's " +
				"network does not lead there (no network); name it: network: [example.org]"},
		"no page": {"- {id: a, instruction: x, answer: 1, browser: {site: x, start: gone.html}}",
			`bad tasks.yaml:1:54: task "a": tasks[0].browser.site: start "gone.html" is no page of it`},
		"no folder": {"- {id: a, instruction: x, answer: 1, browser: {site: y}}",
			`bad tasks.yaml:1:54: task "a": tasks[0].browser.site: from "y": no such folder or file beside the tasks`},
		"nowhere": {"- {id: a, instruction: x, answer: 1, browser: {site: x, locale: German, timezone: " +
			"Mars/Base}}\n- {id: b, instruction: x, answer: 1, browser: {site: x, locale: pt-BR, timezone: " +
			"America/Sao_Paulo}}", "bad tasks.yaml:1:47: task \"a\": tasks[0].browser: locale \"German\"; want one " +
			"such as de or de-DE\n  tasks.yaml:1:47: tasks[0].browser: timezone \"Mars/Base\" is none; want one such " +
			"as Europe/Berlin\nb"},
		"out": {"- {id: a, instruction: x, answer: 1, browser: {site: ../..}}",
			`bad tasks.yaml:1:54: task "a": tasks[0].browser.site: ".": from "../.." leaves the folder of the tasks`},
		"contract": {"- {id: a, instruction: x, answer: 1, browser: {site: x, contract: miniwob}}\n- {id: b, " +
			"answer: 1, instruction: x, browser: {site: x, contract: webarena}}",
			"bad tasks.yaml:1:3: task \"a\": under the contract miniwob the page says the goal and the reward: leave " +
				"out instruction, answer and grade\nbad tasks.yaml:2:47: task \"b\": tasks[1].browser: contract " +
				"\"webarena\"; known is miniwob"},
		"patterns": {"- {id: a, instruction: x, browser: {site: x, actions: [fly]}, grade: {url: '(', success: ' '}}",
			"bad tasks.yaml:1:36: task \"a\": tasks[0].browser: actions: there is no subset \"fly\"; there are " +
				"assistantbench, bid, chat, coord, infeas, miniwob_all, miniwob_humphreys22, miniwob_liu18, " +
				"miniwob_shi17, nav, tab, visualwebarena, webarena, weblinx, workarena, workarena++\n  " +
				"tasks.yaml:1:76: tasks[0].grade.url: error parsing regexp: missing closing ): `(`\n  " +
				"tasks.yaml:1:90: tasks[0].grade.success: \"success\" is empty"},
		"no actions": {"- {id: a, instruction: x, browser: {site: x, actions: []}, answer: 1}",
			"bad tasks.yaml:1:36: task \"a\": tasks[0].browser: actions: the list is empty; leave the key out for " +
				"the default"},
		"the oracle": {"- {id: a, instruction: x, answer: 1, browser: {site: x}, oracle: {take: {b: x+, 'c d': (x)}, " +
			"actions: [click(<button>), 'clik(\"1\")', click(), 'hello', 'click(<button \"a\">)']}}",
			"bad tasks.yaml:1:73: task \"a\": tasks[0].oracle.take: b: want a pattern with one group in parentheses, " +
				"which is the value\n  tasks.yaml:1:73: tasks[0].oracle.take: c d: want a name of letters, digits " +
				"and _\n  tasks.yaml:1:103: tasks[0].oracle.actions: 1: <button> is not among oracle.take\n  " +
				"tasks.yaml:1:103: tasks[0].oracle.actions: 2: NameError: Invalid action type 'clik'.\n  " +
				"tasks.yaml:1:103: tasks[0].oracle.actions: 3: TypeError: click() missing 1 required positional " +
				"argument: 'bid'\n  tasks.yaml:1:103: tasks[0].oracle.actions: 4: ValueError: Received an " +
				"empty action."},
		"fine": {"defaults: {limits: {pids: 9}, browser: {steps: 5}}\ntasks:\n  - {id: a, instruction: x, " +
			"answer: 1, browser: {site: x}}\n  - {id: b, instruction: x, grade: {success: 'true'}, network: " +
			"[example.org], browser: {start: https://example.org}}\n", "a\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := read(t, load(t, "tasks.yaml", c.text, page, "<p>hello")); got != c.want {
				t.Errorf("have\n%s\nwant\n%s", got, c.want)
			}
		})
	}
	lines := `{"id":"a","instruction":"x","browser":{"site":{"index.html":"<p>"},"viewport":"300x200"},"grade":{"success":{"one":"true"}}}` + "\n" +
		`{"id":"b","instruction":"x","browser":{"site":"x","viewport":"wide"}}`
	if _, got := read(t, load(t, "tasks.jsonl", lines, page, "<p>hello")); got != "a\nbad tasks.jsonl:2: task \"b\": "+
		"browser.viewport: viewport \"wide\"; want width and height, such as 1280x720" {
		t.Error(got)
	}
}

// A link that lies in a site's folder is found before anything is played.
func TestLinkInSite(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []func() error{
		func() error { return os.Mkdir(filepath.Join(dir, "x"), 0o755) },
		func() error { return os.WriteFile(filepath.Join(dir, "x", "index.html"), []byte("<p>"), 0o644) },
		func() error { return os.Symlink("../tasks.yaml", filepath.Join(dir, "x", "answers.html")) },
		func() error {
			return os.WriteFile(filepath.Join(dir, "tasks.yaml"),
				[]byte("- {id: a, instruction: x, answer: 1, browser: {site: x}}"), 0o644)
		},
	} {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	b, err := tasks.New(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, got := read(t, b); got != `bad tasks.yaml:1:54: task "a": tasks[0].browser.site: x/answers.html is a link, and links are not served` {
		t.Error(got)
	}
}

const shop = `
- id: a
  instruction: x
  browser:
    viewport: 400x300
    steps: 6
    site:
      index.html: |
        <title>start</title><button onclick="n++">more</button><button onclick="n = NaN">odd</button><button onclick="n = 'x'">text</button>
        <a href="second.html">on</a><button onclick="delete window.m">gone</button><button onclick="window.open('second.html')">tab</button>
        <script>var n = 0; window.m = 1</script>
      second.html: <title>second</title><p>here</p>
`

// What an agent does, and what it scores.
func TestChecks(t *testing.T) {
	br := realBrowsers(t)
	t.Run("grades", func(t *testing.T) { checks(t, br) })
}

func checks(t *testing.T, br web.Browsers) {
	const forged = `goto("data:text/html,<title>second</title><script>var n=2</script>/second.html")`
	for _, c := range []struct {
		grade   string
		actions []string
		answer  string
		want    float64
		why     string
	}{
		{`success: n === 2`, []string{`click(<button "more">)`, `click(<button "more">)`}, "", 1, ""},
		{`success: n === 2`, []string{`click(<button "more">)`}, "", 0, "it is false"},
		{`success: n === 2`, nil, "", 0, "no step was made"},
		{`success: n / 4`, []string{`click(<button "more">)`}, "", 0.25, "it is 0.25"},
		{`success: new Promise(ok => setTimeout(() => ok(n > 0), 50))`, []string{`click(<button "more">)`}, "", 1, ""},
		{`success: n`, []string{`click(<button "odd">)`}, "", 0, "it is NaN"},
		{`success: n`, []string{`click(<button "text">)`}, "", 0, "of the type string"},
		{`success: m > 0`, []string{`click(<button "gone">)`}, "", 0, "ReferenceError: m is not defined"},
		{`success: new Promise(() => {})`, []string{`click(<button "more">)`}, "", 0, "did not answer within 5s"},
		{`success: n === 2`, []string{forged}, "", 0, "no page of the task is open"},
		{`success: n === 2`, []string{`new_tab()`, forged}, "", 0, "it is false"},
		{`success: {two: n === 2, nothing else: n < 3 && m === 1}`,
			[]string{`click(<button "more">)`, `click(<button "more">)`}, "", 1, ""},
		{`success: {two: n === 2, nothing else: m === 1}`,
			[]string{`click(<button "gone">)`, `click(<button "more">)`, `click(<button "more">)`, `new_tab()`,
				`goto("http://127.0.0.1/")`}, "", 0, "two: it is false"},
		{`{url: second\.html$, success: 'document.title === "second"'}`, []string{forged}, "", 0,
			"no page of the task is open"},
		{`url: /second\.html$`, []string{`click(<link "on">)`}, "", 1, ""},
		{`url: /second\.html$`, []string{`click(<button "tab">)`}, "", 1, ""},
		{`url: /second\.html$`, []string{`click(<button "more">)`}, "", 0, "/index.html"},
		{`{success: {a: n > 0, b: n > 1}, partial: true}`, []string{`click(<button "more">)`}, "", 0.5,
			"b: it is false"},
		{`{success: n > 0, answer: 42}`, []string{`click(<button "more">)`}, "42", 1, ""},
		{`{success: n > 0, answer: 42}`, []string{`click(<button "more">)`, `send_msg_to_user("It is 42.")`}, "41", 1,
			""},
		{`{success: n > 0, answer: 42}`, []string{`click(<button "more">)`}, "41", 0, "answer"},
		{`{success: n > 0, answer: 42}`, []string{`send_msg_to_user("42")`, `click(<button "more">)`}, "", 0,
			"success: it is false"},
		{`{success: n > 0, answer: 42}`, []string{`click(<button "more">)`, `report_infeasible("no")`}, "", 0,
			"answer: no answer"},
		{`success: n > 9`, []string{`noop()`, `noop()`, `noop()`, `noop()`, `noop()`, `noop()`, `noop()`}, "", 0,
			"not done after 6 steps"},
	} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			b := load(t, "tasks.yaml", shop+"  grade: "+
				map[bool]string{true: c.grade, false: "{" + c.grade + "}"}[c.grade[0] == '{']+"\n").In(br)
			list, _ := read(t, b)
			if len(list) != 1 {
				b = load(t, "tasks.yaml", shop+"  grade:\n    "+c.grade+"\n").In(br)
				var text string
				if list, text = read(t, b); len(list) != 1 {
					t.Fatal(text)
				}
			}
			play := func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				return agent.Answer{Parts: event.Text(c.answer)}, tasks.Oracle{Actions: c.actions}.Play(ctx, s)
			}
			if len(c.actions) == 0 {
				play = func(context.Context, *agent.Session) (agent.Answer, error) { return agent.Answer{}, nil }
			}
			p, err := benchtest.Play(t.Context(),
				benchtest.Session{Benchmark: b, Task: list[0], Agent: agent.Func(play)})
			if err != nil {
				t.Fatalf("%s: %v", c.grade, err)
			}
			s := p.Results[0].Primary()
			if s == nil || s.Value == nil || *s.Value != c.want || !strings.Contains(s.Why, c.why) || c.why == "" &&
				s.Why != "" {
				t.Errorf("%s, %q, answer %q: %+v, want %v %q", c.grade, c.actions, c.answer, s, c.want, c.why)
				if s != nil && s.Value != nil {
					t.Log(*s.Value, s.Why)
				}
			}
		})
	}
}

// Under the contract a page that is loaded again ends the episode: it would be another problem.
func TestLoadedAgain(t *testing.T) {
	br := realBrowsers(t)
	b := load(t, "tasks.yaml", `
- id: a
  browser:
    contract: miniwob
    start: press.html
    site:
      press.html: |
        <!DOCTYPE html><script src="evalrun/core.js"></script><div id="query"></div><button onclick="core.endEpisode(1)">easy</button>
        <script>function genProblem() { query.textContent = 'Press it.' }</script>
`).In(br)
	list, text := read(t, b)
	if len(list) != 1 {
		t.Fatal(text)
	}
	for want, actions := range map[float64][]string{1: {`noop(1)`, `click(<button "easy">)`},
		0: {`goto("http://127.0.0.1/press.html")`, `mouse_click(10, 10)`, `click(<button "easy">)`}} {
		play := func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
			return agent.Answer{}, tasks.Oracle{Actions: actions}.Play(ctx, s)
		}
		p, err := benchtest.Play(t.Context(), benchtest.Session{Benchmark: b, Task: list[0], Agent: agent.Func(play)})
		if err != nil {
			t.Fatal(err)
		}
		s := p.Results[0].Primary()
		if s == nil || s.Value == nil || *s.Value != want || want == 0 && !strings.Contains(s.Why, "loaded again") {
			t.Errorf("%q: %+v, want %v", actions, s, want)
		}
	}
}
