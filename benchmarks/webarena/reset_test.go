package webarena

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/benchmarks/web"
)

// still is a benchmark that is not played.
func still(t *testing.T, d Dialect, options string, configs ...string) (*Benchmark, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tasks.json")
	if err := os.WriteFile(file, []byte("["+strings.Join(configs, ",")+"]"), 0o600); err != nil {
		t.Fatal(err)
	}
	return New(d, file, []byte(options), web.Browsers{},
		func(name string) string { return map[string]string{"WA_MAP": "http://map/", "WA_REDDIT": "todo"}[name] })
}

// Between two rounds sites are reset once; within one, and before the first, they are not.
func TestResetByCommand(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	b, err := still(t, WebArena, fmt.Sprintf(`{"reset":{"command":["sh","-c","echo reset >> %s"]}}`, log), best)
	if err != nil {
		t.Fatal(err)
	}
	b.logins.put("x", nil)
	for _, round := range []int{0, 2, 2, 3, 3, 0, 5} {
		if err := b.rounds.enter(t.Context(), round, b.restore); err != nil {
			t.Fatal(err)
		}
	}
	if raw, err := os.ReadFile(log); err != nil || string(raw) != "reset\nreset\n" {
		t.Errorf("%q, %v: want two resets", raw, err)
	}
	if b.logins.cookies != nil {
		t.Error("who was logged in before a reset was kept")
	}
}

func TestResetFails(t *testing.T) {
	for options, want := range map[string]string{
		`{"reset":{"command":["sh","-c","echo no such container; exit 3"]}}`: "resetting the sites: sh: exit status " +
			"3; it said: no such container",
		`{"reset":{"command":["sh","-c","sleep 100"],"limit":"100ms"}}`: "it took longer than 100ms",
	} {
		b, err := still(t, WebArena, options, best)
		if err != nil {
			t.Fatal(err)
		}
		b.rounds.enter(t.Context(), 1, b.restore)
		for range 2 { // it is tried again: the round has not begun
			if err := b.rounds.enter(t.Context(), 2, b.restore); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", options, err, want)
			}
		}
	}
}

func TestResetByURL(t *testing.T) {
	var asked atomic.Int64
	code := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/reset":
			w.WriteHeader(code)
		case asked.Add(1) < 3:
			fmt.Fprint(w, "wait")
		default:
			fmt.Fprint(w, "Ready for duty!")
		}
	}))
	defer s.Close()
	b, err := still(t, WebArena, fmt.Sprintf(`{"reset":{"url":%q}}`, s.URL+"/"), best)
	if err != nil {
		t.Fatal(err)
	}
	b.rounds.poll = time.Millisecond
	for _, code = range []int{http.StatusOK, http.StatusTeapot} {
		asked.Store(0)
		if err := b.restore(t.Context()); err != nil || asked.Load() != 3 {
			t.Errorf("%d: %v after %d questions", code, err, asked.Load())
		}
	}
	code = http.StatusInternalServerError
	if err := b.restore(t.Context()); err == nil || !strings.Contains(err.Error(), "/reset: 500") {
		t.Errorf("a service that fails: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.DeadlineExceeded)
	if err := b.restore(ctx); err == nil {
		t.Error("no error after the context's end")
	}
}

func TestOptions(t *testing.T) {
	for options, want := range map[string]string{
		`{"sitez":{}}`:                             "sitez",
		`{"sites":{"shop":"http://x"}}`:            `"shop" is no site of this benchmark; there are shopping, shopping_admin`,
		`{"sites":{"map":"localhost:3000"}}`:       `map: "localhost:3000" is no address such as http://localhost:7770`,
		`{"accounts":{"gitlab":{"password":"x"}}}`: "accounts: gitlab: a user",
		`{"without":["user"]}`:                     `without: "user" is none of grader and captioner`,
		`{"reset":{"url":"x","command":["y"]}}`:    "a url or a command",
		`{"reset":{"limit":"soon"}}`:               `"soon" is no time`,
		`{"reset":{"command":["/no/such/prog"]}}`: "reset: command: exec: \"/no/such/prog\": stat /no/such/prog: " +
			"no such file",
		`{"allow":["http://tiles"]}`: `allow: network: "http://tiles" is a URL`,
		`{"actions":["fly"]}`:        "fly",
		`{"subset":"huge"}`:          `"huge" is none of this benchmark's`,
		`{"login":"never"}`:          `"never" is none of kept, fresh, none`,
	} {
		if _, err := still(t, WebArena, options, best); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", options, err, want)
		}
	}
	for config, want := range map[string]string{
		`{}`: "", `{"without":["grader"]}`: "without the grader",
		`{"sites":{"map":"todo"}}`: "the site map is not there",
	} {
		b, err := still(t, WebArena, config, never, posting)
		if err != nil {
			t.Fatal(err)
		}
		task, err := b.Source().Task(t.Context(), "8")
		if err != nil {
			t.Fatal(err)
		}
		n, err := b.Needs(task, benchmarks.Options{})
		if err != nil || !strings.Contains(n.Skip, want) || want == "" && n.Skip != "" || !n.Browser ||
			len(n.Roles) != 1 || len(n.Exclusive) != 1 {
			t.Errorf("%s: %+v, %v", config, n, err)
		}
		task, err = b.Source().Task(t.Context(), "4")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := b.Needs(task, benchmarks.Options{}); err != nil || !strings.Contains(n.Skip, "WA_SHOPPING") {
			t.Errorf("a site without an address: %+v, %v", n, err)
		}
	}
}
