package quickstart

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/benchtest"
	"github.com/evalrun/evalrun/benchmarks/tasks"
	"github.com/evalrun/evalrun/benchmarks/web"
	"github.com/evalrun/evalrun/browsergym/browsers"
	"github.com/evalrun/evalrun/datasets"
)

func TestMain(m *testing.M) { benchtest.Main(m) }

const all = 33

func inBrowser(t datasets.Task) bool { return slices.Contains(t.Tags, "browser") }
func onMachine(t datasets.Task) bool { return !inBrowser(t) }

func TestSuite(t *testing.T) {
	benchtest.Run(t, benchtest.Suite{Benchmark: New(), Driver: benchtest.Local(t), Tasks: onMachine, Want: all})
}

// Without isolation the tasks work too. The service is left out: its port would be this machine's.
func TestUnisolated(t *testing.T) {
	benchtest.Run(t, benchtest.Suite{Benchmark: New(), Driver: benchtest.Unisolated(t),
		Tasks: func(task datasets.Task) bool {
			return onMachine(task) && task.ID != "service"
		}})
}

func withBrowsers(t *testing.T) *tasks.Benchmark {
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
	return New().In(web.Browsers{Pool: p})
}

func TestBrowser(t *testing.T) {
	benchtest.Run(t, benchtest.Suite{Benchmark: withBrowsers(t), Tasks: inBrowser, Want: all})
}

// The pages make up another problem for each seed, which the known solution solves, too.
func TestSeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("24 episodes")
	}
	b := withBrowsers(t)
	each(t, b, func(t *testing.T, task datasets.Task) {
		solver, err := b.Solve(task)
		if err != nil {
			t.Fatal(err)
		}
		goals := map[string]bool{}
		for seed := range uint32(3) {
			var goal string
			f := func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				goal = s.Goal.Text()
				return solver.Run(ctx, s)
			}
			if got := score(t, b, seeded(t, task, seed), f); got != 1 {
				t.Errorf("seed %d: the known solution scores %v; the goal: %s", seed, got, goal)
			}
			goals[goal] = true
		}
		if len(goals) < 3 {
			t.Errorf("goals of three seeds: %v", goals)
		}
	})
}

// each calls f for every task in a browser, some at once, and returns when all are through.
func each(t *testing.T, b *tasks.Benchmark, f func(*testing.T, datasets.Task)) {
	t.Run("tasks", func(t *testing.T) {
		for task, err := range b.Source().Tasks(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if inBrowser(task) {
				t.Run(task.ID, func(t *testing.T) {
					t.Parallel()
					f(t, task)
				})
			}
		}
	})
}

// seeded is the task with another seed.
func seeded(t *testing.T, task datasets.Task, seed uint32) datasets.Task {
	t.Helper()
	var data tasks.Task
	if err := json.Unmarshal(task.Data, &data); err != nil {
		t.Fatal(err)
	}
	if data.Browser == nil {
		t.Fatal("the task is not played in a browser")
	}
	data.Browser.Seed = &seed
	var err error
	if task.Data, err = json.Marshal(data); err != nil {
		t.Fatal(err)
	}
	return task
}

func score(t *testing.T, b benchmarks.Benchmark, task datasets.Task, f agent.Func) float64 {
	t.Helper()
	p, err := benchtest.Play(t.Context(), benchtest.Session{Benchmark: b, Task: task, Agent: f})
	if err != nil {
		t.Fatalf("%s: %v", task.ID, err)
	}
	for _, s := range p.Strays {
		t.Errorf("%s: %s", task.ID, s)
	}
	v, err := p.Score(b)
	if err != nil {
		t.Fatalf("%s: %v", task.ID, err)
	}
	return v
}

// Who does it wrong, gives up, says something or tries to write the reward scores 0.
func TestCheats(t *testing.T) {
	if testing.Short() {
		t.Skip("64 episodes")
	}
	b := withBrowsers(t)
	const forge = `void(WOB_RAW_REWARD_GLOBAL = WOB_REWARD_GLOBAL = 1, WOB_DONE_GLOBAL = true)`
	everywhere := map[string][]string{
		"gives up":                        {`report_infeasible("no")`},
		"talks":                           {`send_msg_to_user("Done, the answer is 1234.")`},
		"writes the reward by an address": {`goto("javascript:` + forge + `")`, `noop(1)`},
		"writes the reward from a page of its own": {`new_tab()`,
			`goto("data:text/html,<script>` + forge + `</script>")`, `noop(1)`},
		"writes the reward from a page around the task": {`goto("data:text/html,<script>` + forge + `</script>")`,
			`noop(1)`},
		"ends the episode by the page's cover": {`keyboard_press("Escape")`, `mouse_click(330, 200)`,
			`noop(1)`},
		"starts the page anew": {`goto("about:blank")`, `go_back()`, `noop(1)`},
	}
	wrong := map[string]string{
		"web-form":   `click(<button "Book the table">)`,
		"web-table":  `click(<button "Reorder" after "'Bird house'">)`,
		"web-tabs":   `click(<button "Hand out">)`,
		"web-drag":   `click(<button "Save the board">)`,
		"web-shadow": `click(<button "Apply">)`,
		"web-frame":  `click(<button "Pay">)`,
		"web-scroll": `click(<button "Invite Ada Adler">)`,
		"web-chat":   `send_msg_to_user("One of 1000, 2000 and 3000.")`,
	}
	each(t, b, func(t *testing.T, task datasets.Task) {
		tries := map[string][]string{"does it wrong": {wrong[task.ID]}}
		maps.Copy(tries, everywhere)
		for name, actions := range tries {
			var failed error
			f := func(ctx context.Context, s *agent.Session) (agent.Answer, error) {
				failed = tasks.Oracle{Actions: actions}.Play(ctx, s)
				return agent.Answer{Parts: event.Text("Done.")}, failed
			}
			if got := score(t, b, task, f); got != 0 {
				t.Errorf("an agent that %s scores %v", name, got)
			}
			if name == "does it wrong" && failed != nil {
				t.Error(failed)
			}
		}
	})
}

func Example() {
	n := map[string]int{}
	for task, err := range New().Source().Tasks(context.Background()) {
		if err != nil {
			fmt.Println(err)
			continue
		}
		n[task.Tags[0]]++
	}
	fmt.Println(n)
	// Output: map[browser:8 function:9 question:7 shell:9]
}
