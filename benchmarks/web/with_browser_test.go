package web_test

import (
	"context"
	"fmt"
	"io"
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

const build = `
name: build
tasks:
  - id: page
    instruction: Serve a page on port 8123, look at it, and answer with its heading.
    answer: Hello
`

// An agent looks at what it serves in its machine, and what it downloads from there comes back into
// it.
func TestBeside(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_BROWSER") == "" || os.Getenv("EVALRUN_TEST_LOCAL") == "" {
		t.Skip("needs a browser (EVALRUN_TEST_BROWSER=1) and local sandboxes (EVALRUN_TEST_LOCAL=1)")
	}
	file := filepath.Join(t.TempDir(), "tasks.yaml")
	if err := os.WriteFile(file, []byte(build), 0o644); err != nil {
		t.Fatal(err)
	}
	plain, err := tasks.New(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := browsers.New(browsers.Options{})
	defer p.Close()
	b := web.WithBrowser(plain, web.Browsers{Pool: p})
	task, err := b.Source().Task(t.Context(), "page")
	if err != nil {
		t.Fatal(err)
	}
	var seen []event.Body
	played, err := benchtest.Play(t.Context(),
		benchtest.Session{Benchmark: b, Task: task, Driver: benchtest.Local(t),
			Agent: agent.Func(func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				if !s.Can("browse_interactive") || !s.Can("run") {
					t.Error("no browser, or no shell")
				}
				do := func(b event.Body) event.Body {
					e, err := s.Step(ctx, event.New(event.FromAgent, b))
					if err != nil {
						t.Errorf("%+v: %v", b, err)
					}
					seen = append(seen, e.Body)
					return e.Body
				}
				do(event.Browse{Code: "goto('http://localhost:8123/')"}) // nothing is there yet
				do(event.Run{Command: `mkdir site && echo '<title>T</title><h1>Hello</h1><a href="a.bin" download>get</a>' > site/index.html && printf 'x\001y' > site/a.bin &&
			(cd site && nohup python3 -m http.server 8123 >/dev/null 2>&1 &) ; for i in $(seq 50); do sleep 0.1; python3 -c 'import socket;socket.create_connection(("127.0.0.1",8123))' 2>/dev/null && break; done`})
				o, _ := do(event.BrowseURL{URL: "http://localhost:8123/"}).(event.Browsed)
				if o.Error != "" || o.AX == nil {
					t.Errorf("the page: %+v", o)
					return agent.Answer{}, nil
				}
				r, err := s.Log.OpenBlob(ctx, *o.AX)
				if err != nil {
					t.Fatal(err)
				}
				raw, _ := io.ReadAll(r)
				bid := ""
				for _, part := range strings.Split(string(raw), "{\"nodeId\"") {
					if strings.Contains(part, `"link"`) {
						_, bid, _ = strings.Cut(part, `"browsergym_id":"`)
						bid, _, _ = strings.Cut(bid, `"`)
					}
				}
				path := ""
				for i := 0; i < 20 && path == ""; i++ {
					o, _ := do(event.Browse{Code: fmt.Sprintf("click('%s')\nnoop(200)", bid)}).(event.Browsed)
					for _, d := range o.Downloads {
						path = d.Path
					}
				}
				out, _ := do(event.Run{Command: "od -c " + path}).(event.RunResult)
				if !strings.Contains(out.Output, `x 001   y`) {
					t.Errorf("download %q: %s", path, out.Output)
				}
				if strings.Contains(string(raw), "Hello") {
					return agent.Answer{Parts: event.Text("Hello")}, nil
				}
				return agent.Answer{}, nil
			})})
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := seen[0].(event.Browsed); !strings.Contains(o.Error, "net::ERR") {
		t.Errorf("before anything was served: %+v", seen[0])
	}
	if v, err := played.Score(b); err != nil || v != 1 || len(played.Strays) > 0 {
		t.Errorf("score %v, %v; %v", v, err, played.Strays)
	}
}

func TestMain(m *testing.M) { benchtest.Main(m) }
