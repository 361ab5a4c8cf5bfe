package verify

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/executor"
)

// A trial is what a second opinion is asked for, with what comes of its plays.
type trial struct {
	why      string // of the pending confirmation
	oracle   bool
	work     *Work    // nil: of /app, with the names
	names    []string // files of the work
	stored   *reference
	rewards  []float64 // of the plays, in order
	failing  error     // of the plays
	badStore error
}

// An asked is what became of it.
type asked struct {
	c      record.Confirmation
	err    error
	plays  []Replay
	stored map[string][]byte
}

func ask(t *testing.T, x trial) (out asked) {
	t.Helper()
	log := &agenttest.Log{}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range x.names {
		h := tar.Header{Name: strings.TrimPrefix(name, "/"), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if strings.HasSuffix(name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	blob, err := log.PutBlob(t.Context(), "application/x-tar", &b)
	if err != nil {
		t.Fatal(err)
	}
	if x.work == nil {
		x.work = &Work{Paths: []string{"/app", "/app/answer.txt", "/etc/hosts"}}
	}
	out.stored = map[string][]byte{}
	if x.stored != nil {
		out.stored[referenceKey("oracle", "key")], _ = json.Marshal(x.stored)
	}
	out.c, out.err = Opinion(t.Context(), Claim{Key: "key", Log: log, Work: []*Work{x.work},
		Claim: benchmarks.Claim{Reward: 1, Oracle: x.oracle,
			Confirmation: record.Confirmation{State: record.Pending, Why: x.why, Slipped: []string{"/used"}},
			Evidence:     []benchmarks.Evidence{{Files: map[string]event.Blob{workKey: blob}}},
			Reference: func(ctx context.Context, key string,
				make func(context.Context) ([]byte, error)) ([]byte, error) {
				if x.badStore != nil {
					return nil, x.badStore
				}
				if text, ok := out.stored[key]; ok || make == nil {
					return text, nil
				}
				text, err := make(ctx)
				if err == nil {
					out.stored[key] = text
				}
				return text, err
			}},
		Play: func(ctx context.Context, r Replay) (Played, error) {
			out.plays = append(out.plays, r)
			if x.failing != nil {
				return Played{}, x.failing
			}
			if r.Trace != nil {
				r.Trace.Missing = append(r.Trace.Missing, "/app/conftest.py")
			}
			p := Played{Why: "the verifier's words"}
			if n := len(out.plays) - 1; n < len(x.rewards) {
				p.Reward = x.rewards[n]
			}
			return p, nil
		}})
	return out
}

// full is a reference of an oracle that is confirmed.
func full(l executor.Lookups) *reference {
	one := 1.0
	l.Complete = true
	return &reference{Oracle: &one, Full: 1, Trace: Trace{Lookups: l}}
}

func TestOpinion(t *testing.T) {
	lower := 0.5
	doubtful := full(executor.Lookups{})
	doubtful.Oracle = &lower
	missing := full(executor.Lookups{Missing: []string{"/app/conftest.py"}})
	for _, c := range []struct {
		name  string
		x     trial
		plays int
		state string
		why   string // part of it
	}{
		{"nothing was used", trial{stored: full(executor.Lookups{}), names: []string{"/app/answer.txt"}}, 0,
			record.Confirmed, ""},
		{"equal", trial{stored: full(executor.Lookups{}), why: "something", rewards: []float64{1}}, 1, record.Confirmed,
			"something"},
		{"higher", trial{stored: full(executor.Lookups{}), why: "something", rewards: []float64{2}}, 1,
			record.Confirmed, ""},
		{"lower once", trial{stored: full(executor.Lookups{}), why: "something", rewards: []float64{0, 1}}, 2,
			record.Confirmed, ""},
		{"lower twice", trial{stored: full(executor.Lookups{}), why: "something", rewards: []float64{0, 0.5}}, 2,
			record.Unconfirmed, "0.5 instead of 1 in a fresh machine that has only the work; something; the verifier " +
				"says: the verifier's words"},
		{"slipped", trial{stored: missing, names: []string{"/app/conftest.py"}, rewards: []float64{1}}, 1,
			record.Confirmed,
			"files of the work at names that the verifier looks up: 1"},
		{"slipped, lower", trial{stored: missing, names: []string{"/app/conftest.py"}}, 2, record.Unconfirmed,
			"at names"},
		{"the oracle's is lower", trial{stored: doubtful, why: "something"}, 0, record.Inapplicable,
			"the task's own solution earns 0.5"},
		{"no oracle: nothing was used", trial{rewards: []float64{0}}, 1, record.Confirmed, ""},
		{"no oracle: equal", trial{why: "something", rewards: []float64{0, 1}}, 2, record.Confirmed, ""},
		{"no oracle: lower", trial{why: "something"}, 3, record.Unknown, "evalrun tasks check"},
		{"too much work", trial{work: &Work{Grown: "more than"}}, 0, record.Unconfirmed, "more than"},
		{"the oracle", trial{oracle: true, rewards: []float64{1}}, 1, record.Confirmed, ""},
		{"the oracle, lower once", trial{oracle: true, rewards: []float64{0, 1}}, 2, record.Confirmed, ""},
		{"the oracle, lower", trial{oracle: true, rewards: []float64{0, 0}}, 2, record.Unconfirmed,
			"needs more of the machine"},
		{"another trial of the oracle's", trial{oracle: true, stored: full(executor.Lookups{})}, 0, record.Confirmed,
			""},
	} {
		a := ask(t, c.x)
		if a.err != nil || a.c.State != c.state || !strings.Contains(a.c.Why, c.why) || len(a.plays) != c.plays ||
			c.state == record.Confirmed && c.why == "" && c.x.why == "" && a.c.Why != "" {
			t.Errorf("%s: %+v, %v, %d plays; want %s after %d, and %q", c.name, a.c, a.err, len(a.plays), c.state,
				c.plays, c.why)
		}
	}
	if out, err := Opinion(t.Context(), Claim{Work: []*Work{nil}}); err != nil || out.State != record.Inapplicable {
		t.Errorf("work that was not kept: %+v, %v", out, err)
	}
}

// A machine or a store that fails is no verdict.
func TestOpinionFails(t *testing.T) {
	broken := errors.New("broken")
	for name, x := range map[string]trial{
		"the reference's play": {failing: broken},
		"the oracle's play":    {failing: broken, oracle: true},
		"a play":               {failing: broken, why: "something", stored: full(executor.Lookups{})},
		"the store":            {badStore: broken, why: "something"},
	} {
		if a := ask(t, x); !errors.Is(a.err, broken) || a.c.State != "" {
			t.Errorf("%s: %+v, %v", name, a.c, a.err)
		}
	}
}

// Plays get the work but for what is slipped in, the reference of a verifier alone gets none, and
// the oracle's is traced.
func TestPlays(t *testing.T) {
	a := ask(t, trial{names: []string{"/app/conftest.py", "/app/answer.txt"}, rewards: []float64{0, 1}})
	if len(a.plays) != 2 || a.plays[0].Evidence != nil || a.plays[0].Trace == nil || a.plays[1].Trace != nil ||
		len(a.plays[1].Evidence) != 1 || !a.plays[1].Without("/app/conftest.py") ||
		a.plays[1].Without("/app/answer.txt") ||
		a.stored[referenceKey("nop", "key")] == nil ||
		!slices.Equal(a.c.Slipped, []string{"/used", "/app/conftest.py"}) || a.c.Reward == nil {
		t.Errorf("%+v", a)
	}
	a = ask(t, trial{oracle: true, rewards: []float64{1}})
	if len(a.plays) != 1 || len(a.plays[0].Evidence) != 1 || a.plays[0].Trace == nil || a.plays[0].Without != nil ||
		!strings.Contains(string(a.stored[referenceKey("oracle", "key")]), "/app/conftest.py") {
		t.Errorf("%+v", a)
	}
}

func TestSlipped(t *testing.T) {
	for name, c := range map[string]struct {
		trace executor.Lookups
		work  []string
		want  string
	}{
		"a name that was missing": {executor.Lookups{Missing: []string{"/app/a.py"}}, []string{"/app/a.py"},
			"/app/a.py"},
		"a name that was found": {executor.Lookups{Found: []string{"/app/a.py"}}, []string{"/app/a.py"}, ""},
		"found, and missing before": {executor.Lookups{Found: []string{"/app/a"}, Missing: []string{"/app/a"}},
			[]string{"/app/a"}, "/app/a"},
		"a name nobody looked up": {executor.Lookups{Missing: []string{"/app/b"}}, []string{"/app/a"}, ""},
		"a folder that was missing": {executor.Lookups{Missing: []string{"/app/lib"}}, []string{"/app/lib/x/y"},
			"/app/lib"},
		"an entry of a missing folder": {executor.Lookups{Missing: []string{"/app/lib/x"}},
			[]string{"/app/lib/", "/app/lib/x"}, "/app/lib/x"},
		"a path of the work": {executor.Lookups{Missing: []string{"/app/answer.txt", "/app"}},
			[]string{"/app/answer.txt"}, ""},
		"outside of the work": {executor.Lookups{Missing: []string{"/etc", "/etc/hosts"}},
			[]string{"/etc/hosts"}, ""},
		"a module before the library's": {
			executor.Lookups{Listed: []string{"/app"},
				Found: []string{"/usr/lib/json/__init__.py", "/usr/lib/json.py"}}, []string{"/app/json.py"},
			"/app/json.py"},
		"with another extension": {
			executor.Lookups{Listed: []string{"/app"}, Found: []string{"/usr/lib/json.py"}},
			[]string{"/app/json.cpython-311.so"}, "/app/json.cpython-311.so"},
		"as a folder": {executor.Lookups{Listed: []string{"/app"}, Found: []string{"/usr/lib/json"}},
			[]string{"/app/json/x.py"}, "/app/json"},
		"in a folder that is not read": {
			executor.Lookups{Listed: []string{"/app"}, Found: []string{"/usr/lib/json.py"}}, []string{"/app/x/json.py"},
			""},
		"the other one is in the work": {
			executor.Lookups{Listed: []string{"/app"}, Found: []string{"/app/lib/json.py"}}, []string{"/app/json.py"},
			""},
		"the other one is beside it": {executor.Lookups{Listed: []string{"/app"}, Found: []string{"/app/json.py"}},
			[]string{"/app/json.txt"}, ""},
		"names that begin with a dot": {executor.Lookups{Listed: []string{"/app"}, Found: []string{"/root/.profile"}},
			[]string{"/app/.env"}, ""},
		"the same with a dot": {executor.Lookups{Listed: []string{"/app"}, Found: []string{"/root/.env"}},
			[]string{"/app/.env"}, "/app/.env"},
	} {
		c.trace.Complete = true
		a := ask(t, trial{stored: full(c.trace), names: c.work, rewards: []float64{1}})
		if got := strings.Join(a.c.Slipped[1:], " "); a.err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, a.err, c.want)
		}
	}
}

// What is said of many slipped files is bounded; all are left out.
func TestManySlipped(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("/app/x%03d", i))
	}
	a := ask(t, trial{stored: full(executor.Lookups{Missing: names}), names: names, rewards: []float64{1}})
	if a.err != nil || len(a.c.Slipped) != 20 || len(a.plays) != 1 || !a.plays[0].Without("/app/x499") {
		t.Errorf("%+v", a)
	}
}
