package web_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym"
	"github.com/evalrun/evalrun/browsergym/action"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/browsergym/cdp"
)

// hanging are pages that stop answering, by what is done on them.
var hanging = []struct{ name, script, act string }{
	{"a loop in a timer", `setTimeout(() => { for (;;); }, 100)`, "noop(300)"},
	{"a loop when it is clicked", `onclick = () => { for (;;); }`, "mouse_click(5, 5)"},
	{"a loop when the mouse moves", `onmousemove = () => { for (;;); }`, "mouse_move(5, 5)"},
	{"a loop when a key is pressed", `onkeydown = () => { for (;;); }`, "keyboard_press('a')"},
	{"a loop when it is left", `onbeforeunload = () => { for (;;); }`, "mouse_click(5, 5)\ngoto('/next.html')"},
	{"a loop when it is hidden", `onpagehide = onunload = () => { for (;;); }`, "goto('/next.html')"},
	{"a request that nobody answers", `setTimeout(() => { const r = new XMLHttpRequest(); r.open('GET', '/never', false); r.send(); }, 100)`, "noop(300)"},
	{"alerts", `setTimeout(() => { for (;;) alert('more'); }, 100)`, "noop(300)"},
	{"a frame that loops", `document.body.append(Object.assign(document.createElement('iframe'), {srcdoc: '<script>setTimeout(() => { for (;;); }, 200)</' + 'script>'}))`, "noop(600)"},
	{"a popup that loops", `onclick = () => { const w = open('about:blank'); w.setTimeout(() => { for (;;); }, 200) }`,
		"mouse_click(5, 5)\nnoop(600)"},
	{"a process that is stopped", `onclick = () => { const t = Date.now(); while (Date.now() < t + 500); }`, "STOP"},
}

// A page that hangs ends its episode soon, with 0 and a flag, and nobody else's.
func TestPagesThatHang(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") != "1" {
		t.Skip("no browser for tests (EVALRUN_TEST_BROWSER=1)")
	}
	p := browsers.New(browsers.Options{PageHang: 10 * time.Second})
	defer p.Close()
	neighbour, err := p.For(browsers.AccessOptions{}).NewContext(t.Context(), cdp.ContextOptions{})
	if err != nil {
		t.Fatal(err)
	}
	page, err := neighbour.NewPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("pages", func(t *testing.T) {
		for i, h := range hanging {
			if testing.Short() && i%5 != 0 {
				continue // each takes several seconds, whatever the machine
			}
			t.Run(h.name, func(t *testing.T) {
				if h.act != "STOP" { // which looks for the one that is busy
					t.Parallel()
				}
				hang(t, p, neighbour.Browser().PID(), h.script, h.act)
			})
		}
	})
	if title := ""; page.Evaluate(t.Context(), "String(6 * 7)", &title) != nil || title != "42" {
		t.Errorf("the neighbour: %q", title)
	}
	if s := p.Stats(); s.Lost != 0 || s.Contexts != 1 {
		t.Errorf("%+v", s)
	}
	// a spare one, too
	for limit := time.Now().Add(time.Minute); len(renderers(neighbour.Browser().PID())) > 2; time.Sleep(
		100 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("processes of pages that hang go on: %v", renderers(neighbour.Browser().PID()))
		}
	}
}

// onPages completes the configuration of an episode on pages of ours, where "/never" is not
// answered.
func onPages(t *testing.T, p *browsers.Pool, c web.Config, files fstest.MapFS) web.Config {
	t.Helper()
	s := web.Serve(files)
	w := browsers.AccessOptions{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := s.Dial(ctx, network, addr)
		return &mute{Conn: c, never: make(chan struct{})}, err
	}}
	c.Host, c.Close = host{&agenttest.Log{}}, s.Close
	c.Actions = action.Options{Subsets: []string{"bid", "coord", "nav", "tab"}}
	if c.Task == nil {
		c.Task = func(uint32) (browsergym.Task, error) { return at{web.SiteURL}, nil }
	}
	if err := (web.Browsers{Pool: p}).Configure(&c, w); err != nil {
		t.Fatal(err)
	}
	return c
}

// soon is when a page that hangs is told from one that does not, on a machine that is busy with
// many such pages.
const soon = 5 * time.Minute

func hang(t *testing.T, p *browsers.Pool, browser int, script, code string) {
	c := onPages(t, p, web.Config{}, fstest.MapFS{
		"index.html": {Data: []byte(`<title>Start</title><body><p>text<script>` + script + `</script>`)},
		"next.html":  {Data: []byte(`<title>Next</title>next`)},
	})
	begun := time.Now()
	e, err := web.Open(t.Context(), c)
	if err != nil { // it hangs before the agent has begun
		said := strings.Contains(err.Error(), "did not answer") || strings.Contains(err.Error(), "its process has died")
		if d := time.Since(begun); d > soon || !said || browsers.Infra(err) {
			t.Errorf("after %v: %v", d, err)
		}
		return
	}
	defer func() {
		begun := time.Now()
		if err := e.Close(); err != nil || time.Since(begun) > soon {
			t.Errorf("closing, for %v: %v", time.Since(begun), err)
		}
	}()
	if code == "STOP" {
		code = "noop(10)"
		before := work(browser)
		if _, err := e.Step(t.Context(),
			event.New(event.FromAgent, event.Browse{Code: "mouse_click(5, 5)"})); err != nil {
			t.Fatal(err)
		}
		busiest, most := 0, 0
		for pid, n := range work(browser) {
			if n -= before[pid]; n > most {
				busiest, most = pid, n
			}
		}
		if err := syscall.Kill(busiest, syscall.SIGSTOP); busiest == 0 || err != nil {
			t.Fatalf("stopping the page's process %d: %v", busiest, err)
		}
	}
	code = strings.ReplaceAll(code, "goto('/", "goto('"+web.SiteURL)
	begun = time.Now()
	var turn struct {
		done bool
		err  string
	}
	for range 2 { // what begins to hang late is met by the second
		r, err := e.Step(t.Context(), event.New(event.FromAgent, event.Browse{Code: code}))
		if err != nil {
			t.Fatal(err)
		}
		o := r.Obs.(event.Browsed)
		turn.done, turn.err = r.Done, o.Error
		if r.Done {
			break
		}
	}
	if d := time.Since(begun); d > soon {
		t.Errorf("it took %v", d)
	}
	if !turn.done {
		t.Fatalf("it goes on, with the error %q", turn.err)
	}
	ev, err := e.Collect(t.Context(), agent.Answer{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := web.Grade(ev); err != nil || !slices.Contains(r.Flags, web.FlagPage) || *r.Primary().Value != 0 ||
		!strings.Contains(turn.err, "did not answer") && !strings.Contains(turn.err, "took too long") {
		t.Errorf("%+v, %v, %q", r, err, turn.err)
	}
}

// at is the task of a page and nothing else.
type at struct{ url string }

func (at) Settings() browsergym.Settings { return browsergym.Settings{Timeout: 20 * time.Second} }
func (a at) Setup(ctx context.Context, p *cdp.Page) (browsergym.Start, error) {
	return browsergym.Start{Goal: browsergym.Text("Look.")}, p.Goto(ctx, a.url)
}
func (at) Teardown(context.Context) error { return nil }
func (at) Validate(ctx context.Context, p *cdp.Page, _ []browsergym.Message) (browsergym.Verdict, error) {
	return browsergym.Verdict{Info: map[string]any{}}, nil
}

// mute is a connection on which "/never" is not answered.
type mute struct {
	net.Conn
	once  sync.Once
	never chan struct{}
}

func (m *mute) Close() error {
	m.once.Do(func() { close(m.never) })
	return m.Conn.Close()
}

func (m *mute) Write(b []byte) (int, error) {
	if strings.HasPrefix(string(b), "GET /never") {
		<-m.never
		return 0, errors.New("over")
	}
	return m.Conn.Write(b)
}

// renderers are the processes of pages below a process.
func renderers(pid int) (found []int) {
	out, _ := exec.Command("ps", "-eo", "pid=,ppid=,args=").Output()
	parent := map[int]int{}
	var all []int
	for l := range strings.Lines(string(out)) {
		f := strings.Fields(l)
		if len(f) < 3 {
			continue
		}
		id, _ := strconv.Atoi(f[0])
		parent[id], _ = strconv.Atoi(f[1])
		if strings.Contains(l, "--type=renderer") {
			all = append(all, id)
		}
	}
	for _, id := range all {
		for p := id; p > 1; p = parent[p] {
			if p == pid {
				found = append(found, id)
				break
			}
		}
	}
	return found
}

// work is the user time that each process of a browser's pages has taken.
func work(pid int) map[int]int {
	all := map[int]int{}
	for _, id := range renderers(pid) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
		if f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])); len(f) > 11 {
			all[id], _ = strconv.Atoi(f[11])
		}
	}
	return all
}
