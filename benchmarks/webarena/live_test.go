package webarena

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// Configurations as the published ones are, on sites of ours.
const (
	best    = `{"task_id":0,"sites":["shopping_admin"],"start_url":"__SHOPPING_ADMIN__","intent":"What is the best-selling product?","intent_template_id":1,"eval":{"eval_types":["string_match"],"reference_answers":{"exact_match":"Quest Lumaflex™ Band"}}}`
	guard   = `{"task_id":1,"sites":["shopping"],"start_url":"__SHOPPING__","intent":"Show a mouth guard","eval":{"eval_types":["url_match","program_html"],"reference_url":"__SHOPPING__/guard.html","url_note":"GOLD in PRED","program_html":[{"url":"last","locator":"","required_contents":{"must_include":["jaw bruxism","mouth guard"]}}]}}`
	ordered = `{"task_id":2,"sites":["shopping"],"start_url":"${SHOPPING}","intent":"Order B07DFJ5XKH","eval":{"eval_types":["program_html"],"program_html":[{"url":"func:shopping_get_latest_order_url()","locator":"document.querySelector(\".order-details-items.ordered\").outerText","required_contents":{"must_include":["B07DFJ5XKH"]}}]}}`
	rating  = `{"task_id":3,"sites":["shopping"],"start_url":"__SHOPPING__","intent":"Review it","eval":{"eval_types":["program_html"],"program_html":[{"url":"last","locator":"func:shopping_get_sku_latest_review_rating('B00J8RZL7I')","required_contents":{"must_include":["100"]}}]}}`
	posting = `{"task_id":4,"sites":["shopping","reddit"],"start_url":"__SHOPPING__/guard.html |AND| __REDDIT__","intent":"Ask which console to buy","eval":{"eval_types":["url_match","program_html"],"reference_url":"__REDDIT__/f/gaming","program_html":[{"url":"func:reddit_get_post_url('__last_url__')","locator":"document.querySelector('.submission__inner').outerText","required_contents":{"must_include":["recommended console |OR| best console"]}}]}}`
	role    = `{"task_id":5,"sites":["gitlab"],"start_url":"__GITLAB__","intent":"Invite him as a guest","eval":{"eval_types":["program_html"],"program_html":[{"url":"__GITLAB__/byteblaze/dotfiles/-/project_members","locator":"func:gitlab_get_project_memeber_role(__page__, 'abisubramanya27')","required_contents":{"must_include":["Guest"]}}]}}`
	rule    = `{"task_id":6,"sites":["shopping_admin"],"start_url":"__SHOPPING_ADMIN__","intent":"Make a rule","eval":{"eval_types":["program_html"],"program_html":[{"url":"last","locator":"document.querySelector('[name=\"simple_action\"').value","prep_actions":["document.querySelector('[data-index=\"actions\"]').querySelector('.admin__collapsible-title').click()"],"required_contents":{"exact_match":"by_percent"}}]}}`
	route   = `{"task_id":7,"sites":["map"],"start_url":"__MAP__","intent":"Find the way on foot","eval":{"eval_types":["program_html"],"program_html":[{"url":"last","locator":"document.querySelector(\"div#content select.routing_engines\").selectedIndex","required_contents":{"exact_match":"1"}},{"url":"last","locator":"document.querySelector('[name=\"route_from\"').value","required_contents":{"must_include":["Gates and Hillman Centers","Pittsburgh"]}}]}}`
	never   = `{"task_id":8,"sites":["map"],"start_url":"__MAP__","intent":"How far is it to the moon?","eval":{"eval_types":["string_match"],"reference_answers":{"fuzzy_match":"N/A"},"string_note":"the moon is not on the map"}}`
	fuzzy   = `{"task_id":9,"sites":["map"],"start_url":"__MAP__","intent":"How long does it take?","eval":{"eval_types":["string_match"],"reference_answers":{"fuzzy_match":["29 min"]}}}`
)

func everything(t *testing.T, w *world, options map[string]any) *Benchmark {
	return bench(t, WebArena, w.sites, options, best, guard, ordered, rating, posting, role, rule, route, never, fuzzy)
}

// What a right session does scores 1, at the step at which it is done; a wrong one 0.
func TestSessions(t *testing.T) {
	judge := func(word string) map[string]func(*model.Request) (string, error) {
		return map[string]func(*model.Request) (string, error){
			roleGrader: func(*model.Request) (string, error) { return word, nil }}
	}
	fill := func(pairs ...string) func(*game) {
		return func(g *game) {
			for i := 0; i+1 < len(pairs); i += 2 {
				g.must("fill('" + g.bid(pairs[i]) + "', '" + pairs[i+1] + "')")
			}
			g.must("click('" + g.bid(pairs[len(pairs)-1]) + "')")
		}
	}
	for _, tt := range []struct {
		name, id string
		play     func(*game)
		answer   string
		judge    string
		done     bool // by what was done, before any answer
		want     float64
	}{
		{"said in the chat", "0", func(g *game) { g.must("send_msg_to_user('quest lumaflex™ band')") }, "", "", true,
			1},
		{"said at the end", "0", func(*game) {}, "Quest Lumaflex™ Band", "", false, 1},
		{"wrong answer", "0", func(g *game) { g.must("send_msg_to_user('Sprite Ball')") }, "", "", true, 0},
		{"not possible, they say", "0", func(g *game) { g.must("report_infeasible('no such list')") }, "", "", true, 0},
		{"a page", "1", func(g *game) { g.must("noop()", "click('"+g.bid("Guard")+"')") }, "", "", true, 1},
		{"another page", "1", func(g *game) { g.must("noop()") }, "", "", false, 0},
		{"an order", "2", fill("SKU", "B07DFJ5XKH", "Order"), "", "", true, 1},
		{"another order", "2", fill("SKU", "X1", "Order"), "", "", false, 0},
		{"a review", "3", fill("Rating", "100", "Review"), "", "", true, 1},
		{"another review", "3", fill("Rating", "20", "Review"), "", "", false, 0},
		{"a post", "4", fill("Forum", "gaming", "Title", "The best console?", "Submit"), "", "", true, 1},
		{"another forum", "4", fill("Forum", "pics", "Title", "The best console?", "Submit"), "", "", false, 0},
		{"another post", "4", fill("Forum", "gaming", "Title", "Hello", "Submit"), "done", "", false, 0},
		{"a member's role", "5", func(g *game) { g.must("noop()") }, "", "", true, 1},
		{"what a click shows", "6", func(g *game) { g.must("click('" + g.bid("New rule") + "')") }, "", "", true, 1},
		{"a page without it", "6", func(g *game) { g.must("noop()") }, "", "", false, 0},
		{"a choice", "7", func(g *game) { g.must("select_option('" + g.bid("combobox") + "', 'foot')") }, "", "", true,
			1},
		{"another choice", "7", func(g *game) { g.must("noop()") }, "", "", false, 0},
		{"not possible", "8", func(g *game) { g.must("report_infeasible('no rockets')") }, "", "different", true, 1},
		{"not possible, in words", "8", func(g *game) { g.must("send_msg_to_user('the moon is off the map')") }, "",
			"same", true, 1},
		{"not possible, for another reason", "8", func(g *game) { g.must("send_msg_to_user('it rains')") }, "",
			"different", true, 0},
		{"the judge agrees", "9", func(*game) {}, "half an hour", "Correct", false, 1},
		{"the judge does not", "9", func(*game) {}, "two hours", "incorrect", false, 0},
		{"the judge agrees in part", "9", func(*game) {}, "some time", "partially correct", false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := begin(t, everything(t, newWorld(t), nil), tt.id, judge(tt.judge))
			tt.play(g)
			if g.last.Done != tt.done || tt.done && *g.last.Reward != tt.want {
				t.Errorf("after the last step: done %v, reward %v; %s", g.last.Done, g.last.Reward, g.last.Info)
			}
			got, r, err := g.end(tt.answer)
			if err != nil || got != tt.want {
				t.Errorf("score %v, %v, %v; want %v; %s", got, r, err, tt.want, g.last.Info)
			}
		})
	}
}

// Pages that are opened: the last one is the active one, and who came is logged in on all sites.
func TestStart(t *testing.T) {
	w := newWorld(t)
	g := begin(t, everything(t, w, map[string]any{"na_hint": true}), "4", nil)
	g.must("")
	if len(g.seen.Pages) != 2 || g.seen.Active != 1 || !strings.HasPrefix(g.seen.Pages[0].URL, w.sites["shopping"]) ||
		!strings.HasPrefix(g.seen.URL, w.sites["reddit"]) {
		t.Errorf("pages %v, active %d", g.seen.Pages, g.seen.Active)
	}
	g.bid("MarvelsGrantMan136")
	if !strings.Contains(g.goal.Text(), "console") || !strings.Contains(g.goal.Text(), "N/A") {
		t.Errorf("goal %q", g.goal.Text())
	}
	g.must("tab_focus(0)", "goto('"+w.sites["shopping"]+"')")
	g.bid("Welcome, Emma Lopez")
}

// An agent that leaves the sites is out.
func TestElsewhere(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	sites := Sites{}
	for k, v := range w.sites {
		sites[k] = v
	}
	b := bench(t, WebArena, sites, map[string]any{"allow": []string{"127.0.0.1"}}, guard)
	g := begin(t, b, "1", nil)
	g.must("goto('" + other.sites["shopping"] + "/guard.html')")
	if got, r, err := g.end(""); !g.last.Done || got != 0 || err != nil ||
		!strings.Contains(r.Primary().Why, "Unauthorized url") {
		t.Errorf("elsewhere: done %v, %v, %v, %v", g.last.Done, got, r, err)
	}
}

// One login serves many sessions; when the site no longer knows it, another is made.
func TestKeptLogin(t *testing.T) {
	w := newWorld(t)
	b := everything(t, w, nil)
	for i, want := range []int{1, 1, 2} {
		if i == 2 {
			w.expire("gitlab")
		}
		g := begin(t, b, "5", nil)
		g.bid("Your projects")
		if got := w.count("gitlab"); got != want {
			t.Errorf("session %d: %d logins, want %d", i, got, want)
		}
	}
	fresh := everything(t, w, map[string]any{"login": "fresh"})
	begin(t, fresh, "5", nil)
	begin(t, fresh, "5", nil)
	if got := w.count("gitlab"); got != 4 {
		t.Errorf("%d logins, want 4: each session its own", got)
	}
}

// Who cannot log in is told why, and it is no score.
func TestLoginFails(t *testing.T) {
	w := newWorld(t)
	b := bench(t, WebArena, w.sites, map[string]any{
		"accounts": map[string]any{"gitlab": map[string]string{"user": "byteblaze", "secret": "GITLAB"}}}, role)
	b.limit = 2 * time.Second
	_, err := newGame(t, b, "5", nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"logging in to gitlab", "as byteblaze", "still asks for a password",
		"Invalid login or password."} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: without %q", err, part)
		}
	}
	if errors.As(err, new(*model.Error)) || errors.As(err, new(*sandbox.Unsupported)) {
		t.Errorf("%v: not an infrastructure failure", err)
	}
}

// A site that goes away is nobody's score; one that was never there skips its tasks.
func TestSiteGoesAway(t *testing.T) {
	w := newWorld(t)
	b := everything(t, w, nil)
	g := begin(t, b, "1", nil).must("noop()")
	w.set("shopping", true)
	if err := g.do("click('" + g.bid("Guard") + "')"); err != nil {
		t.Errorf("what a page does is no error: %v", err)
	}
	if _, r, err := g.end(""); err == nil || !strings.Contains(err.Error(), "the site shopping (") ||
		!strings.Contains(err.Error(), "has stopped to answer") {
		t.Errorf("an episode on a site that went away: %v, %v", r, err)
	}
	// In the middle of an evaluation.
	g = begin(t, b, "5", nil)
	w.set("gitlab", true)
	if err := g.do("noop()"); err == nil || !strings.Contains(err.Error(), "the site does not answer") {
		t.Errorf("an evaluator's page that does not open: %v", err)
	}
	// A session that begins then.
	if _, err := newGame(t, b, "5", nil); err == nil || !strings.Contains(err.Error(), "has stopped to answer") ||
		errors.As(err, new(*sandbox.Unsupported)) {
		t.Errorf("a session on a site that went away: %v", err)
	}
	// A run that begins then.
	late := everything(t, w, nil)
	if _, err := late.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"1": "the site shopping (", "5": "the site gitlab (", "7": ""} {
		task, err := late.Source().Task(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		needs, err := late.Needs(task, benchmarks.Options{})
		if err != nil || !strings.HasPrefix(needs.Skip, want) || (want == "") != (needs.Skip == "") {
			t.Errorf("task %s: skip %q, %v", id, needs.Skip, err)
		}
	}
	if _, err := newGame(t, late, "5", nil); !errors.As(err, new(*sandbox.Unsupported)) {
		t.Errorf("a task on a site that never was there: %v, want skipped", err)
	}
}

// Failures of the model that grades are its provider's.
func TestJudgeFails(t *testing.T) {
	b := everything(t, newWorld(t), nil)
	for _, class := range []string{model.Overload, model.Auth, model.Refused, model.Context} {
		g := begin(t, b, "9", map[string]func(*model.Request) (string, error){
			roleGrader: func(*model.Request) (string, error) {
				return "", &model.Error{Class: class, Err: errors.New("no")}
			}})
		err := g.do("send_msg_to_user('half an hour')")
		var e *model.Error
		if !errors.As(err, &e) || !e.Provider() {
			t.Errorf("%s: %v, want the provider's", class, err)
		}
	}
}

// What evaluators look at is not told to the agent: neither the pages, nor what they say on their
// consoles or fail to load.
func TestJudgeIsSilent(t *testing.T) {
	w := newWorld(t)
	loud := strings.Replace(role, "__GITLAB__/byteblaze/dotfiles/-/project_members", "__GITLAB__/loud/secret", 1)
	g := begin(t, bench(t, WebArena, w.sites, nil, loud), "5", nil).must("noop()", "noop()")
	if n := w.requests("gitlab /loud/secret"); n != 2 {
		t.Errorf("the evaluator looked %d times", n)
	}
	raw, err := json.Marshal(g.seen)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "secret") || len(g.seen.Pages) != 1 || len(g.seen.Log) != 0 {
		t.Errorf("the agent was told: %s", raw)
	}
}
