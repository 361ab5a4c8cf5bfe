package tasks_test

import (
	"context"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/tasks"
)

// A page with a seed counts with the episode's only, however an agent writes another one.
func TestAnotherSeed(t *testing.T) {
	br := realBrowsers(t)
	b := load(t, "tasks.yaml", `
- id: a
  instruction: Be done.
  browser:
    start: "index.html?seed={seed}&level=1"
    site:
      index.html: |
        <!DOCTYPE html><button onclick="history.pushState(0, '', '?view=2'); done = true">Do it</button><a href="next.html">Next</a>
        <script>let done = !location.search.includes('level=1')</script>
      next.html: |
        <!DOCTYPE html><script>let done = true</script>
  grade: {success: done}
`).In(br)
	list, text := read(t, b)
	if len(list) != 1 {
		t.Fatal(text)
	}
	const at = "http://127.0.0.1"
	for _, c := range []struct {
		want    float64
		actions []string
	}{
		{0, []string{`noop(1)`}},
		{1, []string{`click(<button "Do it">)`}},
		{1, []string{`click(<link "Next">)`}},
		{0, []string{`goto("` + at + `/?seed=1234567")`, `noop(1)`}},
		{0, []string{`goto("` + at + `/index.html")`, `noop(1)`}},
		{0, []string{`goto("` + at + `/x/..//index.html?x&%73eed=1234567")`, `noop(1)`}},
		{0, []string{`new_tab()`, `goto("` + at + `/index.html?seed=1234567&level=1")`, `click(<button "Do it">)`,
			`noop(1)`}},
	} {
		play := func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
			return agent.Answer{}, tasks.Oracle{Actions: c.actions}.Play(ctx, s)
		}
		p, err := benchtest.Play(t.Context(), benchtest.Session{Benchmark: b, Task: list[0], Agent: agent.Func(play)})
		if err != nil {
			t.Fatal(err)
		}
		s := p.Results[0].Primary()
		if s == nil || s.Value == nil || *s.Value != c.want {
			t.Errorf("%q: %+v, want %v", c.actions, s, c.want)
		} else if strings.Contains(strings.Join(c.actions, ""), "goto") && len(c.actions) == 2 &&
			!strings.Contains(s.Why, "another seed") {
			t.Errorf("%q: %s", c.actions, s.Why)
		}
	}
}
