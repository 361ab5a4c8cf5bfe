package web_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"image/png"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

const shop = `<!DOCTYPE html><title>Shop</title><h1>Shop</h1><p>Tea is <a href="/tea">here</a>.</p>
<custom-tag>marked as well</custom-tag><button onclick="document.title='bought'">Buy</button>`

// served is a pool of one context and a site that its pages reach.
func served(t *testing.T) (func() *browsers.Access, string) {
	if os.Getenv("EVALRUN_TEST_BROWSER") == "" {
		t.Skip("needs a browser (EVALRUN_TEST_BROWSER=1)")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(shop)) })
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="../../evil.sh"`)
		w.Write([]byte("%PDF-1.7\nnot much of one"))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	p := browsers.New(browsers.Options{})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return func() *browsers.Access { return p.For(browsers.AccessOptions{Hosts: []string{"127.0.0.1:" + port}}) },
		"http://127.0.0.1:" + port + "/"
}

func open(t *testing.T, c web.BrowserEnvConfig) *web.BrowserEnv {
	t.Helper()
	b, err := web.OpenBrowserEnv(t.Context(), c)
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

func step(t *testing.T, b *web.BrowserEnv, code string) *web.BrowserOutput {
	t.Helper()
	o, err := b.Step(t.Context(), code)
	if err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return o
}

func TestBrowserEnvOpen(t *testing.T) {
	access, url := served(t)
	shots := t.TempDir()
	var kept []string
	b := open(t, web.BrowserEnvConfig{Browser: access(), Screenshots: shots,
		ScreenshotsAs: "/workspace/.browser_screenshots", Dir: "/nowhere",
		Keep: func(_ context.Context, name, file string) (string, error) {
			raw, err := os.ReadFile(file)
			kept = append(kept, name+" "+string(raw[:8]))
			return "/workspace/" + name, err
		}})
	if !b.Alive(t.Context()) {
		t.Error("not alive after its start")
	}

	o := step(t, b, "goto('"+url+"')")
	for _, want := range []string{"[Current URL: " + url + "]\n[Focused element bid: ",
		"]\n[Screenshot saved to: /workspace/.browser_screenshots/screenshot_",
		".png]\n\n[Action executed successfully.]\n", "============== BEGIN accessibility tree ==============\n",
		"button 'Buy', clickable\n", "marked as well"} {
		if !strings.Contains(o.Content, want) {
			t.Errorf("no %q in:\n%s", want, o.Content)
		}
	}
	if want := "#  Shop \n\nTea is [ here ](/tea) . \n\nmarked as well  Buy \n"; o.Text != want {
		t.Errorf("text %q, want %q", o.Text, want)
	}
	if o.Error || o.Trigger != "browse_interactive" || o.Active != 0 || len(o.URLs) != 1 || o.OnlyVisible {
		t.Errorf("%+v", o)
	}
	for _, u := range []string{o.Screenshot, o.Marks} {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(u, "data:image/png;base64,"))
		if err != nil {
			t.Fatal(err)
		}
		if img, err := png.Decode(strings.NewReader(string(raw))); err != nil || img.Bounds().Dx() != 1280 {
			t.Errorf("picture: %v", err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(shots, "screenshot_*_*_*.png")); len(files) != 1 {
		t.Errorf("saved %v", files)
	}

	o = step(t, b, "click('nothing')")
	if !o.Error || !strings.Contains(o.Content, "================ BEGIN error message ===============\n") ||
		!strings.Contains(o.Content, `Could not find element with bid "nothing"`) {
		t.Errorf("a failed action:\n%s", o.Content)
	}
	// Without a task the pseudo-actions are no actions.
	if o = step(t, b, web.GetRewards); !strings.Contains(o.LastError, "empty action") {
		t.Errorf("rewards without a task: %+v", o)
	}
	if o, _ = b.Browse(t.Context(), url); o.Trigger != "browse" ||
		!strings.Contains(o.Content, "BEGIN webpage content ==============\n#  Shop") ||
		strings.Contains(o.Content, "accessibility") {
		t.Errorf("%s\n%s", o.Trigger, o.Content)
	}
	if o, _ = b.Browse(t.Context(), "page.html"); !o.Error || o.LastAction != `goto("/nowhere/page.html")` {
		t.Errorf("an address without a site: %+v", o.LastAction)
	}

	o = step(t, b, "goto('"+url+"file')")
	for range 50 { // a download may end after the navigation that began it
		if o.Downloaded != "" {
			break
		}
		time.Sleep(50 * time.Millisecond)
		o = step(t, b, "click('nothing')")
	}
	if o.Downloaded != "/workspace/file_1.pdf" || strings.Join(kept, ",") != "file_1.pdf %PDF-1.7" ||
		!strings.Contains(o.Content, "/workspace/file_1.pdf") {
		t.Errorf("downloaded %q, kept %q: %s", o.Downloaded, kept, o.Content)
	}

	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"content", "url", "screenshot", "set_of_marks", "goal_image_urls", "open_pages_urls",
		"active_page_index", "focused_element_bid",
		"last_browser_action", "last_browser_action_error", "error", "trigger_by_action", "filter_visible_only"} {
		if !strings.Contains(string(raw), `"`+key+`":`) {
			t.Errorf("no %s", key)
		}
	}
}

// buying is a task that is done when the button was pressed.
type buying struct{ url string }

func (b buying) Settings() browsergym.Settings { return browsergym.Settings{} }
func (b buying) Setup(ctx context.Context, page *cdp.Page) (browsergym.Start, error) {
	image := browsergym.Item{Type: "image_url", Image: "data:image/png;base64,AAAA"}
	return browsergym.Start{Goal: append(browsergym.Text("Buy what is shown."), image, browsergym.Text("Now.")[0])},
		page.Goto(ctx, b.url)
}
func (b buying) Validate(ctx context.Context, page *cdp.Page,
	_ []browsergym.Message) (v browsergym.Verdict, err error) {
	title, err := page.Title(ctx)
	if title == "bought" {
		v.Reward, v.Done = 1, true
	}
	return v, err
}
func (b buying) Teardown(context.Context) error { return nil }

func TestBrowserEnvEvaluation(t *testing.T) {
	access, url := served(t)
	b := open(t, web.BrowserEnvConfig{Browser: access(),
		Task: func(uint32) (browsergym.Task, error) { return buying{url}, nil }})
	if o := step(t, b, web.GetGoal); o.Content != "Buy what is shown." || o.Text != o.Content ||
		len(o.GoalImages) != 1 {
		t.Errorf("goal %q, %q", o.Content, o.GoalImages)
	}
	if o := step(t, b, web.GetRewards); o.Content != "[]" {
		t.Errorf("rewards %s", o.Content)
	}
	o := step(t, b, "noop(10)")
	bid := ""
	for _, id := range o.Whole.Properties.Bids() {
		if strings.Contains(o.Content, "["+id+"] button 'Buy'") {
			bid = id
		}
	}
	if len(o.GoalImages) != 1 {
		t.Errorf("images of the goal: %q", o.GoalImages)
	}
	if o = step(t, b, "click('"+bid+"')"); o.Error {
		t.Errorf("%s", o.Content)
	}
	if o := step(t, b, web.GetRewards); o.Content != "[0,1]" || b.Reward() != 1 {
		t.Errorf("rewards %s", o.Content)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Step(short, "noop()"); err == nil {
		t.Error("a context that has ended: no error")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Step(t.Context(), "noop()"); err == nil || b.Alive(t.Context()) {
		t.Error("alive after Close")
	}
}

// An action that takes too long is told to the agent; the environment goes on.
func TestBrowserEnvTimeout(t *testing.T) {
	access, _ := served(t)
	// which a busy machine may need for the second
	b := open(t, web.BrowserEnvConfig{Browser: access(), Timeout: 5 * time.Second})
	if o := step(t, b, "noop(20000)"); !o.Error ||
		o.Content != "TimeoutError: Browser environment took too long to respond." || o.Screenshot != "" {
		t.Errorf("%+v", o)
	}
	if o := step(t, b, "noop(1)"); o.Error {
		t.Errorf("afterwards: %s", o.Content)
	}
}
