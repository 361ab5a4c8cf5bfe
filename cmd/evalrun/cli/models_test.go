package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/cmd/evalrun/builtin"

	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/agent/model/modeltest"
)

// A bench is a folder with questions, and what a user types there.
type bench struct {
	t   *testing.T
	dir string
	env map[string]string
}

func newBench(t *testing.T, questions int) *bench {
	b := &bench{t: t, dir: t.TempDir(), env: map[string]string{"NO_COLOR": "1"}}
	var rows strings.Builder
	for i := range questions {
		fmt.Fprintf(&rows, `{"id": "q%d", "question": "Say yes (%d).", "answer": "yes"}`+"\n", i, i)
	}
	b.write("q.jsonl", rows.String())
	return b
}

func (b *bench) write(name, text string) string {
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// evalrun runs the program and returns its exit code and both streams.
func (b *bench) evalrun(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	var out, talk bytes.Buffer
	var mu sync.Mutex
	code = Main(System{Kinds: builtin.Kinds(), Args: args,
		Env:   func(name string) (string, bool) { v, ok := b.env[name]; return v, ok },
		Stdin: strings.NewReader(""), Stdout: &locked{&mu, &out}, Stderr: &locked{&mu, &talk}, Version: "test",
		Exit: func(int) {}})
	mu.Lock()
	defer mu.Unlock()
	return code, out.String(), talk.String()
}

type locked struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w *locked) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// config writes a configuration of the questions with more lines.
func (b *bench) config(more string) string {
	return b.write("c.yaml", fmt.Sprintf("benchmark: {name: qa, path: q.jsonl, options: {machine: false}}\n%s\n", more))
}

// trials are a run's, by arm and task.
func (b *bench) trials(run string) map[string]trial {
	b.t.Helper()
	_, out, talk := b.evalrun("show", run, "--trials", "--json")
	all := map[string]trial{}
	for line := range strings.Lines(out) {
		var x trial
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			b.t.Fatalf("%s: %v\n%s", line, err, talk)
		}
		all[x.Arm+"/"+x.Task] = x
	}
	return all
}

type trial struct {
	Arm, Task, Status, End, Why string
	Reward                      *float64
}

var saysYes = modeltest.Reply{Calls: []event.ReplyCall{{ID: "c1", Name: "finish", Args: `{"message":"ANSWER: yes"}`}},
	Usage: event.Usage{In: 10, Out: 2}}

// docs/models.md says of each answer of a service whose fault it is. Each row is played.
func TestWhoseFault(t *testing.T) {
	page, err := os.ReadFile("../../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ` + "`([a-z]+)`" +
		` \| ([^|]+) \| (yes|no)[^|]* \| ([^|]+) \|$`)
	faults := map[string]modeltest.Fault{ // what is in the table beside statuses
		"no reply within `timeout`": modeltest.Slow(time.Hour), "connection refused or dropped": modeltest.Drop,
		"truncated or unreadable reply": modeltest.Cut(true),
	}
	words := map[string]string{
		"anything": "", "none of the below": "", "none of the above": "",
		"conversation too long": "maximum context length is 10", "content not allowed": "content management policy",
		"credit or quota exhausted": "insufficient_quota", "`Retry-After` above 5 minutes": "",
	}
	rows := row.FindAllStringSubmatch(string(page), -1)
	if len(rows) < 15 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, m := range rows {
		what, says, class, whose, again, then := m[1], m[2], m[3], m[4], m[5], m[6]
		var cases []modeltest.Fault
		if f := faults[what]; f != nil {
			cases = append(cases, f)
		} else {
			text, ok := words[says]
			if !ok {
				t.Errorf("no test knows what %q is", says)
				continue
			}
			var header []string
			if strings.Contains(says, "Retry-After") {
				header = []string{"Retry-After", "7200"}
			}
			for s := range strings.SplitSeq(what, ", ") {
				status, err := strconv.Atoi(s)
				if err != nil {
					t.Errorf("no test knows what %q is", s)
					continue
				}
				cases = append(cases, modeltest.Status(status, "", text, header...))
			}
		}
		for i, f := range cases {
			t.Run(fmt.Sprintf("%s/%s/%d", what, says, i), func(t *testing.T) {
				t.Parallel()
				b := newBench(t, 3)
				srv := modeltest.NewServer(t, func(modeltest.Call) modeltest.Reply { return modeltest.Reply{Fault: f} })
				run := filepath.Join(b.dir, "run")
				timeout := time.Minute // a busy machine may need long to answer
				if strings.Contains(what, "`timeout`") {
					timeout = 200 * time.Millisecond
				}
				code, _, talk := b.evalrun("run", b.config(fmt.Sprintf(`
model: {name: openai/test, base_url: %q, timeout: %v, tries: 2, patience: 3s}
workers: 1
retries: {attempts: 1, pause_after: 2}`, srv.URL, timeout)), "-o", run, "--progress", "plain")
				requests := len(srv.Calls())
				trials := b.trials(run)
				first, n := trial{}, 0
				for _, x := range trials {
					if x.Status != "pending" {
						n++
						first = x
					}
				}
				want := map[string]string{"provider": "provider", "evalrun": "infra", "arm": "scored"}[whose]
				open := strings.HasPrefix(then, "the trial stays open")
				switch {
				case want == "" || n == 0 && !open || !open && first.Status != want:
					t.Errorf("%s, want %s: %+v\n%s", first.Status, whose, trials, talk)
				case want == "scored" && !strings.Contains(first.Why, class):
					t.Errorf("%q does not say %s", first.Why, class)
				}
				if want != "scored" && !strings.Contains(talk, "("+want+", "+class+")") {
					t.Errorf("no word of the failure: %s", talk)
				}
				if again == "yes" && requests <= n || again == "no" && requests > max(n, 1) {
					t.Errorf("%d requests for %d trials", requests, n)
				}
				if paused := strings.Contains(talk,
					"is paused: its model cannot be called"); paused != strings.Contains(then, "the arm is paused") ||
					paused && n > 1 {
					t.Errorf("paused %v with %d trials:\n%s", paused, n, talk)
				}
				if wantCode := map[bool]int{true: 3, false: 0}[want != "scored"]; code != wantCode {
					t.Errorf("exit %d\n%s", code, talk)
				}
				if !open {
					return
				}
				if n != 0 || requests != 1 {
					t.Errorf("%d trials are decided after %d requests", n, requests)
				}
			})
		}
	}
}

// A trial that a service asked to come back to later is played by the resume.
func TestComeBackLater(t *testing.T) {
	b := newBench(t, 4)
	var mu sync.Mutex
	well := false
	srv := modeltest.NewServer(t, func(modeltest.Call) modeltest.Reply {
		mu.Lock()
		defer mu.Unlock()
		if well {
			return saysYes
		}
		return modeltest.Reply{Fault: modeltest.RateSeconds(2 * time.Hour)}
	})
	run := filepath.Join(b.dir, "run")
	code, _, talk := b.evalrun("run", b.config(fmt.Sprintf("model: {name: openai/test, base_url: %q}", srv.URL)), "-o",
		run, "--progress", "plain")
	if code != 3 || !strings.Contains(talk, "the service asks to wait 2h") ||
		!strings.Contains(talk, "the trial stays open") || !strings.Contains(talk, "evalrun resume") {
		t.Errorf("exit %d:\n%s", code, talk)
	}
	mu.Lock()
	well = true
	mu.Unlock()
	if code, out, talk := b.evalrun("resume", run, "--progress", "plain"); code != 0 {
		t.Errorf("exit %d:\n%s%s", code, out, talk)
	}
	for k, x := range b.trials(run) {
		if x.Status != "scored" {
			t.Errorf("%s: %+v", k, x)
		}
	}
}

// A service of ten requests in ten seconds that says nothing of when to come back: no session is
// lost. It takes minutes; scripts/model-faults asks for it.
func TestRateOfTheService(t *testing.T) {
	if os.Getenv("EVALRUN_TEST_RATE") == "" {
		t.Skip("set EVALRUN_TEST_RATE=1 to play 64 sessions against a service of ten requests in ten seconds")
	}
	for _, sessions := range []int{16, 64} {
		b := newBench(t, sessions)
		var mu sync.Mutex
		var times []time.Time
		refused := 0
		srv := modeltest.NewServer(t, func(modeltest.Call) modeltest.Reply {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			for len(times) > 0 && now.Sub(times[0]) >= 10*time.Second {
				times = times[1:]
			}
			if len(times) >= 10 {
				refused++
				return modeltest.Reply{Fault: modeltest.Rate}
			}
			times = append(times, now)
			return saysYes
		})
		run := filepath.Join(b.dir, "run")
		begun := time.Now()
		code, out, talk := b.evalrun("run",
			b.config(fmt.Sprintf("model: {name: openai/test, base_url: %q}\nworkers: %d", srv.URL, sessions)), "-o",
			run, "--progress", "plain")
		if code != 0 {
			t.Errorf("exit %d:\n%s%s", code, out, talk)
		}
		if !strings.Contains(talk, "openai/test throttles: ") {
			t.Errorf("progress does not say what the run waits for:\n%s", talk)
		}
		t.Logf("%d sessions in %v, %d requests refused; the last of progress:\n%s", sessions,
			time.Since(begun).Round(time.Second), refused, talk)
	}
}

// A call that is never answered is given up after the model's timeout and tried again; neither the
// agent's limit nor the other sessions pay for it, progress says what the run waits for, and the
// log tells each retry.
func TestHungCall(t *testing.T) {
	b := newBench(t, 6)
	var mu sync.Mutex
	hung := 0
	srv := modeltest.NewServer(t, func(modeltest.Call) modeltest.Reply {
		mu.Lock()
		defer mu.Unlock()
		if hung++; hung == 2 {
			return modeltest.Reply{Fault: modeltest.Slow(time.Hour)}
		}
		return saysYes
	})
	run := filepath.Join(b.dir, "run")
	code, out, talk := b.evalrun("--log-level", "debug", "run", b.config(fmt.Sprintf(`
model: {name: openai/test, base_url: %q, timeout: 3s, connections: 1}
limits: {time: 2s}
workers: 3`, srv.URL)), "-o", run, "--progress", "plain")
	if code != 0 {
		t.Fatalf("exit %d:\n%s%s", code, out, talk)
	}
	if !regexp.MustCompile(`level=DEBUG msg="model call" model=openai/test .*try=1 took=3\S+ .*no whole answer in time`).MatchString(talk) ||
		!regexp.MustCompile(`level=DEBUG msg="model call" .*try=2 `).MatchString(talk) {
		t.Errorf("the log does not tell of the retry:\n%s", talk)
	}
	for k, x := range b.trials(run) {
		if x.Status != "scored" || x.Reward == nil || *x.Reward != 1 {
			t.Errorf("%s: %+v", k, x)
		}
	}
}

// Requests go where OPENAI_BASE_URL says, with what the vendor's variables say beside; the dry run,
// the configuration and doctor tell, and a resume goes to the same place.
func TestUsualVariables(t *testing.T) {
	b := newBench(t, 2)
	fail := true
	var mu sync.Mutex
	srv := modeltest.NewServer(t, func(modeltest.Call) modeltest.Reply {
		mu.Lock()
		defer mu.Unlock()
		if fail {
			return modeltest.Reply{Fault: modeltest.RateSeconds(time.Hour)}
		}
		return saysYes
	})
	b.env["OPENAI_BASE_URL"], b.env["OPENAI_API_KEY"] = srv.URL, "sk-of-the-test"
	b.env["OPENAI_ORG_ID"], b.env["OPENAI_PROJECT_ID"] = "org-1", "proj-1"
	b.env["OPENAI_CUSTOM_HEADERS"] = "X-Team: evals\nX-More: yes: it is\n"
	conf := b.config("model: openai/test")
	for _, args := range [][]string{{"run", conf, "--dry-run"}, {"run", conf, "--dry-run", "--json"},
		{"config", "show", conf}, {"doctor"}} {
		if _, out, talk := b.evalrun(args...); !strings.Contains(out, srv.URL) {
			t.Errorf("%v does not say where requests go:\n%s%s", args, out, talk)
		}
	}
	if n := len(srv.Calls()); n > 0 {
		t.Errorf("%d requests", n)
	}
	run := filepath.Join(b.dir, "run")
	if code, out, talk := b.evalrun("run", conf, "-o", run); code != 3 {
		t.Fatalf("exit %d:\n%s%s", code, out, talk)
	}
	calls := srv.Calls()
	if len(calls) == 0 {
		t.Fatal("no request came")
	}
	for name, want := range map[string]string{"Authorization": "Bearer sk-of-the-test", "OpenAI-Organization": "org-1",
		"OpenAI-Project": "proj-1",
		"X-Team":         "evals", "X-More": "yes: it is"} {
		if got := calls[0].Header.Get(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	mu.Lock()
	fail = false
	mu.Unlock()
	b.env["OPENAI_BASE_URL"] = modeltest.DeadURL(t)
	if code, out, talk := b.evalrun("resume", run); code != 0 {
		t.Errorf("the resume went elsewhere: exit %d:\n%s%s", code, out, talk)
	}
	// A server of one's own is not told whose account it is, and base_url wins.
	other := modeltest.NewServer(t, modeltest.Replies(saysYes))
	if code, out, talk := b.evalrun("run", b.config(fmt.Sprintf("model: {name: openai/test, base_url: %q}", other.URL)),
		"-o", run+"2"); code != 0 {
		t.Fatalf("exit %d:\n%s%s", code, out, talk)
	}
	if h := other.Calls()[0].Header; h.Get("Authorization")+h.Get("OpenAI-Organization")+h.Get("X-Team") != "" {
		t.Errorf("headers %v", h)
	}
	// A server that needs no key.
	b.env = map[string]string{"OPENAI_BASE_URL": other.URL}
	if code, out, talk := b.evalrun("run", conf, "-o", run+"3"); code != 0 {
		t.Errorf("without a key: exit %d:\n%s%s", code, out, talk)
	}
	for name, bad := range map[string]map[string]string{
		"OPENAI_BASE_URL":       {"OPENAI_BASE_URL": "localhost:8000"},
		"OPENAI_CUSTOM_HEADERS": {"OPENAI_CUSTOM_HEADERS": "no colon", "OPENAI_API_KEY": "sk-x"},
	} {
		b.env = bad
		if code, _, talk := b.evalrun("run", b.config("model: openai/test"), "-o", run+"4"); code != 2 ||
			!strings.Contains(talk, name) {
			t.Errorf("%s: exit %d:\n%s", name, code, talk)
		}
	}
}

// Each model has its own connections, whoever else uses its account, and two arms cannot say
// different things of one.
func TestConnections(t *testing.T) {
	b := newBench(t, 12)
	var mu sync.Mutex
	now, peak := map[string]int{}, map[string]int{}
	full := make(chan struct{})
	srv := modeltest.NewServer(t, func(c modeltest.Call) modeltest.Reply {
		name := c.Body.Model
		mu.Lock()
		now[name]++
		peak[name] = max(peak[name], now[name])
		if peak["one"] == 1 && peak["six"] == 6 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		return modeltest.Reply{Fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			select { // until both have what they may have
			case <-full:
			case <-time.After(20 * time.Second):
			}
			mu.Lock()
			now[name]--
			mu.Unlock()
			next.ServeHTTP(w, r)
		}, Calls: saysYes.Calls, Usage: saysYes.Usage}
	})
	run := filepath.Join(b.dir, "run")
	text := `
models:
  one: {name: openai/one, base_url: %[1]q, connections: 1}
  six: {name: openai/six, base_url: %[1]q, connections: 6}
arms: [{model: one}, {model: six}]
workers: 24
`
	code, out, talk := b.evalrun("run", b.config(fmt.Sprintf(text, srv.URL)), "-o", run, "--progress", "plain")
	if code != 0 || peak["one"] != 1 || peak["six"] != 6 {
		t.Errorf("exit %d, at once %v, want 1 and 6\n%s%s", code, peak, out, talk)
	}
	if want := "workers 24 (as asked for; 7 of them can call a model at a time)"; !strings.Contains(talk, want) {
		t.Errorf("the beginning does not say what bounds the workers:\n%s", talk)
	}
	if _, out, _ := b.evalrun("run", b.config(fmt.Sprintf(text, srv.URL)), "--dry-run"); !strings.Contains(out,
		"1 to openai/one, 6 to openai/six") {
		t.Errorf("the dry run does not say it:\n%s", out)
	}
	same := strings.ReplaceAll(text, "openai/six", "openai/one")
	code, _, talk = b.evalrun("run", b.config(
		fmt.Sprintf(strings.Replace(same, "{model: six}", "{name: b, model: six, params: {temperature: 1}}", 1),
			srv.URL)), "--dry-run")
	if code != 2 || !strings.Contains(talk, "connections: 1, another 6") {
		t.Errorf("exit %d:\n%s", code, talk)
	}
}

// A strict replay with another temperature fails, and says why.
func TestTapeSampling(t *testing.T) {
	b := newBench(t, 2)
	srv := modeltest.NewServer(t, modeltest.Replies(saysYes))
	file := filepath.Join(b.dir, "tape.jsonl")
	conf := b.config(fmt.Sprintf("model: {name: openai/test, base_url: %q}\nparams: {temperature: 0.2}", srv.URL))
	if code, _, talk := b.evalrun("run", conf, "-o", filepath.Join(b.dir, "r"), "--record", file); code != 0 {
		t.Fatalf("exit %d:\n%s", code, talk)
	}
	srv.URL = ""
	for _, tt := range []struct {
		set  []string
		code int
		talk string
	}{
		{nil, 0, ""},
		{[]string{"--set", "params.temperature=0.7"}, 3, `{"temperature":0.7}; recorded were: {"temperature":0.2}`},
		{[]string{"--set", "params.temperature=0.7", "--set", "tape.loose=true"}, 0, ""},
	} {
		args := append([]string{"run", conf, "-o", filepath.Join(b.dir, fmt.Sprint("r", len(tt.set), tt.code)),
			"--replay", file, "--progress", "plain"}, tt.set...)
		if code, _, talk := b.evalrun(args...); code != tt.code || !strings.Contains(talk, tt.talk) {
			t.Errorf("%v: exit %d:\n%s", tt.set, code, talk)
		}
	}
}
