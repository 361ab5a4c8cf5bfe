package verify

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/agent/agenttest"
	"github.com/evalrun/evalrun/agent/event"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
	"github.com/evalrun/evalrun/runtime/executor"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A trial is what a second opinion is asked for, with what comes of its plays.
type trial struct {
	why      string // of the pending confirmation
	oracle   bool
	work     *Work    // nil: of /app, with the names
	names    []string // files of the work; with a slash at the end folders, with " -> " links
	stored   *reference
	rewards  []float64 // of the plays, in order
	found    []string  // by the verifier of a reference
	failing  error     // of the plays
	last     bool
	changes  string // the list of them
	badStore error
	unplayed bool
	unsolved bool
	flags    []string // of the trial
	mode     Integrity
	state    string     // of the confirmation; "": pending
	opinion  *float64   // its reward
	before   *reference // stored before the task was changed
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
	out.c, out.err = Opinion(t.Context(), x.claim(t, &out))
	return out
}

// claim returns what Opinion and Regrade are called with. Its plays are added to out.
func (x trial) claim(t *testing.T, out *asked) Claim {
	t.Helper()
	log := &agenttest.Log{}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range x.names {
		h := tar.Header{Name: strings.TrimPrefix(name, "/"), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if strings.HasSuffix(name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if name, target, ok := strings.Cut(h.Name, " -> "); ok {
			h.Typeflag, h.Name, h.Linkname = tar.TypeSymlink, name, target
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
	list, err := log.PutBlob(t.Context(), "text/plain", strings.NewReader(x.changes))
	if err != nil {
		t.Fatal(err)
	}
	out.stored = map[string][]byte{}
	if x.stored != nil {
		out.stored[referenceKey("oracle", "key")], _ = json.Marshal(x.stored)
	}
	if x.before != nil {
		out.stored[referenceKey("oracle", "old key")], _ = json.Marshal(x.before)
	}
	return Claim{Key: "key", Was: "old key", Log: log, Work: []*Work{x.work}, Mode: x.mode, Unsolved: x.unsolved, Tampering: []string{"own"},
		Claim: benchmarks.Claim{Reward: 1, Oracle: x.oracle, Last: x.last, Flags: x.flags,
			Confirmation: record.Confirmation{State: cmp.Or(x.state, record.Pending), Why: x.why,
				Slipped: []string{"/used"}, Reward: x.opinion},
			Evidence: []benchmarks.Evidence{{Files: map[string]event.Blob{workKey: blob, changesKey: list}}},
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
				r.Trace.Found = append(r.Trace.Found, x.found...)
			}
			p := Played{Why: "the verifier's words"}
			if n := len(out.plays) - 1; n < len(x.rewards) {
				p.Reward = x.rewards[n]
			}
			p.Stages = []benchmarks.Result{{Flags: []string{fmt.Sprint(p.Reward)},
				Scores: []record.Score{{Name: "reward", Primary: true, Value: &p.Reward}}}}
			p.Unplayed = x.unplayed
			return p, nil
		}}
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
	one, incomplete := 1.0, full(executor.Lookups{})
	incomplete.Trace.Complete = false
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
		{"asked once more", trial{state: record.Unknown, opinion: &lower, stored: full(executor.Lookups{}),
			why: "something", rewards: []float64{0, 0}}, 2, record.Unconfirmed, "0 instead of 1"},
		{"asked once more, with nothing new", trial{state: record.Unknown, opinion: &lower, why: "something"}, 0,
			record.Unknown, ""},
		{"asked once more, with as little known", trial{state: record.Unknown, opinion: &one, stored: incomplete,
			why: "something"}, 0, record.Unknown, ""},
		{"there is no solution", trial{unsolved: true, why: "something", rewards: []float64{0, 0, 0}}, 3,
			record.Unknown, "the task has no solution"},
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
		{"too much work of the oracle", trial{oracle: true, work: &Work{Grown: "more than"}}, 0, record.Inapplicable,
			"more than"},
		{"the oracle", trial{oracle: true, rewards: []float64{1}}, 1, record.Confirmed, ""},
		{"the oracle, lower once", trial{oracle: true, rewards: []float64{0, 1}}, 2, record.Confirmed, ""},
		{"the oracle, lower", trial{oracle: true, rewards: []float64{0, 0}}, 2, record.Inapplicable,
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

// A grade from the work says so, and is the better of two if it is lower than the first was.
func TestRegrade(t *testing.T) {
	lower := 0.5
	doubtful, incomplete := full(executor.Lookups{}), full(executor.Lookups{})
	doubtful.Oracle = &lower
	incomplete.Trace.Complete = false
	missing := full(executor.Lookups{Missing: []string{"/app/conftest.py"}})
	for name, c := range map[string]struct {
		x     trial
		plays int
		want  string // flags, state and what was left out, or the error
	}{
		"equal": {trial{stored: full(executor.Lookups{}), names: []string{"/app/a"}, rewards: []float64{1}}, 1,
			"1 from_work confirmed"},
		"lower once":  {trial{stored: full(executor.Lookups{}), rewards: []float64{0, 1}}, 2, "1 from_work confirmed"},
		"lower twice": {trial{stored: full(executor.Lookups{}), rewards: []float64{0, 0.5}}, 2, "0.5 from_work confirmed"},
		"slipped": {trial{stored: missing, names: []string{"/app/conftest.py"}, rewards: []float64{1}}, 1,
			"1 from_work confirmed /app/conftest.py"},
		"not all is known": {trial{stored: incomplete, rewards: []float64{1}}, 1, "1 from_work not_known"},
		"no reference": {trial{names: []string{"/app/conftest.py"}, rewards: []float64{0, 1}}, 2,
			"1 from_work confirmed /app/conftest.py"},
		"the oracle": {trial{oracle: true, names: []string{"/usr/a"}, rewards: []float64{0, 0, 1, 1}}, 4,
			"1 from_work confirmed"},
		"the oracle's work is worth nothing": {trial{oracle: true, rewards: []float64{0, 0, 0, 0, 0}}, 5,
			"0 from_work confirmed"},
		"the machine is lost": {trial{stored: full(executor.Lookups{}), last: true,
			failing: &sandbox.Error{Op: "exec", Err: sandbox.ErrHung}}, 2, "from_work no_reward confirmed"},
		"the oracle's is lower": {trial{stored: doubtful}, 0, "the task's own solution earns 0.5 instead of 1"},
		"one more step":         {trial{stored: full(executor.Lookups{}), unplayed: true}, 2, "has not played"},
		"flags of the agent's own machine stay": {trial{stored: full(executor.Lookups{}), rewards: []float64{1},
			flags: []string{FlagForged, benchmarks.FlagNoReward, "own"}}, 1, "1 forged_reward from_work own confirmed"},
		"and cost the reward": {trial{stored: full(executor.Lookups{}), rewards: []float64{1}, mode: Require,
			flags: []string{FlagForged}}, 1, "1 forged_reward from_work = 0 confirmed"},
		"flags that are no tampering cost nothing": {trial{stored: full(executor.Lookups{}), rewards: []float64{1},
			mode: Require, flags: []string{benchmarks.FlagLeftOut}}, 1, "1 from_work confirmed"},
		"a server was needed": {trial{state: record.Inapplicable, why: "the oracle earns less"}, 0,
			"the oracle earns less"},
		"a server was needed before the task changed": {trial{before: doubtful, rewards: []float64{0, 0}}, 0,
			"the task's own solution earns 0.5 instead of 1"},
		"whether a server is needed is not known": {trial{state: record.Unknown, opinion: &lower,
			rewards: []float64{0, 0, 0}}, 3, "evalrun tasks check"},
		"nor is it, but the reward is not lower": {trial{state: record.Unknown, opinion: &lower,
			rewards: []float64{0, 1}}, 2, "1 from_work confirmed"},
		"too much work": {trial{work: &Work{Grown: "more than"}}, 0, "its work was not kept: more than"},
	} {
		var out asked
		results, err := Regrade(t.Context(), c.x.claim(t, &out))
		got := ""
		if err != nil && !errors.Is(err, benchmarks.ErrNeedsLive) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			r := results[0]
			slices.Sort(r.Flags)
			if p := r.Primary(); p != nil && p.Value != nil && *p.Value == 0 && strings.Contains(p.Why, "require") {
				r.Flags = append(r.Flags, "= 0")
			}
			got = strings.Join(slices.Concat(r.Flags, []string{r.Confirmation.State}, r.Confirmation.Slipped), " ")
		} else if strings.Contains(err.Error(), c.want) {
			got = c.want
		}
		if got != c.want || len(out.plays) != c.plays {
			t.Errorf("%s: %q, %v after %d plays; want %q after %d", name, got, err, len(out.plays), c.want, c.plays)
		}
	}
	if _, err := Regrade(t.Context(), Claim{Work: []*Work{nil}}); !errors.Is(err, benchmarks.ErrNeedsLive) {
		t.Errorf("work that was not kept: %v", err)
	}
}

// The work cannot keep the second opinion away by ending its machine.
func TestLostMachine(t *testing.T) {
	gone := func(op string, err error, inside bool) error {
		return &sandbox.Error{Op: op, Err: err, Inside: inside}
	}
	for _, c := range []struct {
		err  error
		last bool
		want bool
	}{
		{gone("kill all", sandbox.ErrSandboxOOM, false), false, true},
		{gone("exec", sandbox.ErrHung, false), true, true}, {gone("exec", sandbox.ErrHung, false), false, false},
		{gone("kill all", errors.New("they do not die"), true), true, true},
		{gone("kill all", errors.New("they do not die"), true), false, false},
		{gone("create", sandbox.ErrHung, false), true, false}, {gone("exec", sandbox.ErrGone, false), true, false},
	} {
		a := ask(t, trial{failing: c.err, last: c.last, why: "used", stored: full(executor.Lookups{})})
		if got := a.err == nil && a.c.State == record.Unconfirmed && strings.Contains(a.c.Why, "lost with the work in it"); got != c.want || !c.want && a.err == nil {
			t.Errorf("%v, last %v: %+v, %v", c.err, c.last, a.c, a.err)
		}
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
	if len(a.plays) != 1 || len(a.plays[0].Evidence) != 1 || a.plays[0].Trace == nil || a.plays[0].Without("/app/conftest.py") ||
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
		"a path that the verifier makes": {executor.Lookups{Missing: []string{"/app/check.py"},
			Found: []string{"/app/check.py"}}, []string{"/app/check.py/", "/app/check.py/__main__.py"}, "/app/check.py"},
		"a path that the verifier makes anew": {executor.Lookups{Missing: []string{"/app/answer.txt"},
			Found: []string{"/app/answer.txt"}}, []string{"/app/answer.txt"}, ""},
		"outside of the work": {executor.Lookups{Missing: []string{"/etc", "/etc/hosts"}},
			[]string{"/etc/hosts"}, ""},
		"a module before the library's": {
			executor.Lookups{Listed: []string{"/app"},
				Found: []string{"/usr/lib/json/__init__.py", "/usr/lib/json.py"}}, []string{"/app/json.py"},
			"/app/json.py"},
		"with another extension": {
			executor.Lookups{Listed: []string{"/app"}, Found: []string{"/usr/lib/json.py"}},
			[]string{"/app/json.cpython-311.so"}, "/app/json.cpython-311.so"},
		"like a file of a package": {executor.Lookups{Listed: []string{"/app"},
			Found: []string{"/usr/lib/email", "/usr/lib/email/utils.py"}, Picked: []string{"/usr/lib/email"}},
			[]string{"/app/utils.py"}, ""},
		"like a package with one file": {executor.Lookups{Listed: []string{"/app"},
			Found: []string{"/usr/lib/one", "/usr/lib/one/__init__.py"}, Picked: []string{"/usr/lib/one"}},
			[]string{"/app/one.py"}, "/app/one.py"},
		"like a module in a folder within another": {executor.Lookups{Listed: []string{"/app"},
			Found:  []string{"/usr/lib/dynload", "/usr/lib/dynload/_json.so"},
			Picked: []string{"/usr/lib/dynload", "/usr/lib/dynload/_json.so"}},
			[]string{"/app/_json.py"}, "/app/_json.py"},
		"as a folder": {executor.Lookups{Listed: []string{"/app"}, Found: []string{"/usr/lib/json"}},
			[]string{"/app/json/x.py"}, "/app/json"},
		"as a folder in which something was found": {executor.Lookups{Listed: []string{"/app"},
			Found: []string{"/usr/lib/json", "/app/json/a/b"}}, []string{"/app/json/x.py"}, ""},
		"as a folder that was there": {executor.Lookups{Listed: []string{"/app"}, Found: []string{"/usr/lib/data"}},
			[]string{"/app/data/x.py"}, ""},
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
		w := &Work{Paths: []string{"/app", "/app/answer.txt", "/app/check.py", "/etc/hosts"},
			New: quoted([]string{"/app/lib", "/app/json", "/app/check.py"})}
		ref := full(c.trace)
		ref.Named = []string{"/app/answer.txt"}
		a := ask(t, trial{stored: ref, work: w, names: c.work, rewards: []float64{1}})
		if got := strings.Join(a.c.Slipped[1:], " "); a.err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, a.err, c.want)
		}
	}
}

// What is outside of the work is not in the second machine; a name that the verifier looks up is a
// reason for one.
func TestElsewhere(t *testing.T) {
	ref := full(executor.Lookups{Missing: []string{"/etc/x", "/opt/a b", "/opt/ä\n", "/app/y", "/opt/new", "/tests/z", "/opt/old"}})
	a := ask(t, trial{stored: ref, rewards: []float64{1}, changes: "+ /etc/x\n+ /opt/a b\n+ \"/opt/ä\\n\"\n+ /app/y\n" +
		"~ /opt/old\n- /opt/gone\n+ /tests/z\n+ /opt/other\n"})
	if got := strings.Join(a.c.Slipped[1:], " "); got != "/etc/x /opt/a b /opt/ä\n" || len(a.plays) != 1 ||
		!strings.Contains(a.c.Why, "outside of the work at names that the verifier looks up: 3") {
		t.Errorf("%q, %d plays: %s", got, len(a.plays), a.c.Why)
	}
	a = ask(t, trial{stored: ref, names: []string{"/app/l -> ../opt/new/x", "/app/m -> /opt/other"}, rewards: []float64{1}})
	if got := strings.Join(a.c.Slipped[1:], " "); got != "/app/l" || !a.plays[0].Without("/app/l") {
		t.Errorf("a link to what the verifier makes: %q", got)
	}
}

// Odd changes are left out if the oracle made none like them and the verifier meets them.
func TestUnlike(t *testing.T) {
	for name, c := range map[string]struct {
		oracle []string // its odd changes
		trace  executor.Lookups
		work   []string
		gone   []string // what was there before
		fresh  []string // new folders
		want   string
	}{
		"a hidden file that is read": {nil, executor.Lookups{Found: []string{"/app/.git/config"}},
			[]string{"/app/.git/index"}, nil, nil, "/app/.git/index"},
		"a hidden folder that nobody reads": {nil, executor.Lookups{Found: []string{"/app/x/.git/config"},
			Listed: []string{"/app"}}, []string{"/app/.git/index"}, nil, nil, ""},
		"a hidden file that the oracle changes": {[]string{"/app/.git/index"},
			executor.Lookups{Found: []string{"/app/.git/HEAD"}},
			[]string{"/app/.git/index", "/app/.git/config"}, []string{"/app/.git/index", "/app/.git/config"}, nil,
			"/app/.git/config"},
		"new objects beside the oracle's": {[]string{"/app/.git/objects/ab"},
			executor.Lookups{Listed: []string{"/app/.git/objects"}},
			[]string{"/app/.git/objects/cd/", "/app/.git/objects/cd/x", "/app/.git/objects/info/graph"},
			nil, []string{"/app/.git/objects/cd"}, "/app/.git/objects/info/graph"},
		"objects in folders that are there": {[]string{"/app/.git/objects/ab/c0ffee"},
			executor.Lookups{Listed: []string{"/app/.git/objects"}}, []string{"/app/.git/objects/cd/", "/app/.git/objects/cd/x",
				"/app/.git/objects/ef/c1ffee", "/app/.git/objects/info/graph", "/app/.git/objects/abc/x", "/app/.git/ab/c0ffee"},
			nil, []string{"/app/.git/objects/cd"},
			"/app/.git/ab/c0ffee /app/.git/objects/abc/x /app/.git/objects/info/graph"},
		"hidden names without digests": {[]string{"/app/.git/hooks/x/y"},
			executor.Lookups{Listed: []string{"/app/.git/hooks"}}, []string{"/app/.git/hooks/post"}, nil, nil,
			"/app/.git/hooks/post"},
		"a file in a folder that the oracle makes": {[]string{"/app/.venv"},
			executor.Lookups{Found: []string{"/app/.venv/bin/python"}}, []string{"/app/.venv/bin/x"}, nil, nil, ""},
		"hidden files outside of what is hidden above the work": {nil,
			executor.Lookups{Found: []string{"/data/.x/y"}}, []string{"/data/.x/y"}, nil, nil, ""},
		"an option": {nil, executor.Lookups{Listed: []string{"/app/src"}}, []string{"/app/src/-m0"}, nil, nil,
			"/app/src/-m0"},
		"an option in a folder that nobody lists": {nil, executor.Lookups{Listed: []string{"/app"}},
			[]string{"/app/src/-m0"}, nil, nil, ""},
		"an assignment": {nil, executor.Lookups{Listed: []string{"/app"}}, []string{"/app/NF=1", "/app/1-a=b"}, nil,
			nil, "/app/NF=1"},
		"beside a hidden file of the oracle's": {[]string{"/app/.gitignore"}, executor.Lookups{Listed: []string{"/app"},
			Found: []string{"/app/.npmrc"}}, []string{"/app/-m0", "/app/.npmrc"}, nil, nil, "/app/-m0 /app/.npmrc"},
		"a quote": {nil, executor.Lookups{Listed: []string{"/app"}}, []string{"/app/don't/x"}, nil, nil,
			"/app/don't/x"},
		"an option and an assignment after a space": {nil, executor.Lookups{Listed: []string{"/app"}},
			[]string{"/app/0 --help", "/app/1 a=b"}, nil, nil, "/app/0 --help /app/1 a=b"},
		"names with spaces, brackets and letters": {nil, executor.Lookups{Listed: []string{"/app"}},
			[]string{"/app/a b", "/app/a - b", "/app/[id].ts", "/app/ä", "/app/a-b"}, nil, nil, ""},
		"a folder that became a link": {nil, executor.Lookups{Listed: []string{"/app/data"}},
			[]string{"/app/data -> other"}, []string{"/app/data"}, nil, "/app/data"},
		"a new link": {nil, executor.Lookups{Listed: []string{"/app"}}, []string{"/app/data -> other"}, nil, nil, ""},
		"what was removed and was found": {nil, executor.Lookups{Found: []string{"/app/a", "/app/b"}}, nil,
			[]string{"/app/a", "/app/c"}, nil, "/app/a"},
		"what the oracle removes, too": {[]string{"/app/a"}, executor.Lookups{Found: []string{"/app/a"}}, nil,
			[]string{"/app/a"}, nil, ""},
		"a file that was replaced": {nil, executor.Lookups{Found: []string{"/app/a"}}, []string{"/app/a"},
			[]string{"/app/a"}, nil, ""},
		"a file of the system": {nil, executor.Lookups{Found: []string{"/etc/hosts"}}, []string{"/etc/hosts"},
			[]string{"/etc/hosts"}, nil, "/etc/hosts"},
		"a file of the system that the oracle changes": {[]string{"/etc/hosts"},
			executor.Lookups{Found: []string{"/etc/hosts"}}, []string{"/etc/hosts"}, []string{"/etc/hosts"}, nil, ""},
		"a new file of the system": {nil, executor.Lookups{Found: []string{"/etc/hosts"}}, []string{"/etc/hosts"},
			nil, nil, ""},
	} {
		ref := full(c.trace)
		ref.Odd = c.oracle
		w := &Work{Paths: []string{"/app", "/data/.x", "/etc/hosts"}, Gone: quoted(c.gone), New: quoted(c.fresh)}
		a := ask(t, trial{stored: ref, work: w, names: c.work, rewards: []float64{1}})
		if got := strings.Join(a.c.Slipped[1:], " "); a.err != nil || got != c.want || len(a.plays) != min(len(got), 1) {
			t.Errorf("%s: %q, %v, %d plays; want %q", name, got, a.err, len(a.plays), c.want)
		}
	}
}

// A large program does not take the room of what small ones look for.
func TestNames(t *testing.T) {
	large := map[string]bool{}
	for i := range maxNames {
		large[fmt.Sprintf("Name%d", i)] = true
	}
	var trace Trace
	trace.addNames([]map[string]bool{large, {"GNUmakefile": true}})
	if len(trace.Names) != maxNames || !slices.Contains(trace.Names, "GNUmakefile") {
		t.Errorf("%d names", len(trace.Names))
	}
}

// What was done to work in a thousand folders.
func BenchmarkDeepWork(b *testing.B) {
	deep := "/app" + strings.Repeat("/a", 995)
	var list []workChange
	for i := range 1000 {
		list = append(list, workChange{name: fmt.Sprintf("%s/%d", deep, i), unit: "/app/a"})
	}
	c := Claim{Work: []*Work{{Paths: []string{"/app"}}}}
	ref := full(executor.Lookups{Found: []string{"/app"}, Listed: []string{"/app"}, Missing: []string{"/app/b"}})
	for b.Loop() {
		c.oddChanges([][]workChange{list})
		_, _, without := c.leftOut([][]workChange{list}, ref)
		for _, x := range list {
			if without(x.name) {
				b.Fatal(x.name)
			}
		}
	}
}

// What is of another type than what was there is left out, unless the oracle made it so.
func TestTurned(t *testing.T) {
	for _, c := range []struct {
		oracle, work []string
		want         string
	}{
		{nil, []string{"/app/file/", "/app/file/x", "/app/unused/", "/app/dir"}, "/app/dir /app/file"},
		{[]string{"/app/file", "/app/dir"}, []string{"/app/file/", "/app/file/x", "/app/dir"}, ""},
	} {
		ref := full(executor.Lookups{Found: []string{"/app/file"}, Listed: []string{"/app/dir"}})
		ref.Odd = c.oracle
		w := &Work{Paths: []string{"/app"}, Gone: quoted([]string{"/app/dir"}),
			Turned: quoted([]string{"/app/file", "/app/unused", "/app/dir"})}
		a := ask(t, trial{stored: ref, work: w, names: c.work, rewards: []float64{1}})
		if got := strings.Join(a.c.Slipped[1:], " "); a.err != nil || got != c.want {
			t.Errorf("%q, want %q, %v", got, c.want, a.err)
		}
		if c.want != "" {
			for name, out := range map[string]bool{"/app/file": true, "/app/file/x": true, "/app/unused": false} {
				if a.plays[0].Without(name) != out {
					t.Errorf("left out: %s: %v", name, !out)
				}
			}
		}
	}
}

func quoted(names []string) (out []string) {
	for _, name := range names {
		out = append(out, strconv.Quote(name))
	}
	return out
}

// A reference keeps the oracle's odd changes.
func TestOracleOdd(t *testing.T) {
	w := &Work{Paths: []string{"/app", "/app/old", "/app/plain"}, Gone: quoted([]string{"/app/.git/index", "/app/old", "/app/data"}),
		New: quoted([]string{"/app/.git/objects/ab"})}
	a := ask(t, trial{oracle: true, work: w, rewards: []float64{1}, names: []string{"/app/.git/index",
		"/app/.git/objects/ab/", "/app/.git/objects/ab/x", "/app/plain", "/app/data -> x"}})
	var ref reference
	if err := json.Unmarshal(a.stored[referenceKey("oracle", "key")], &ref); err != nil || a.err != nil {
		t.Fatal(err, a.err)
	}
	if got := strings.Join(ref.Named, " "); got != "/app/plain" {
		t.Errorf("%s", got)
	}
	if got := strings.Join(ref.Odd, " "); got != "/app/.git/index /app/.git/objects/ab /app/data /app/old" {
		t.Errorf("%s", got)
	}
}

// What the oracle needs outside of the work's paths is work of the others, too.
func TestRest(t *testing.T) {
	names := []string{"/app/a", "/opt/new/x", "/usr/bin/tool"}
	a := ask(t, trial{oracle: true, names: names, rewards: []float64{0, 0, 1}})
	var ref reference
	if err := json.Unmarshal(a.stored[referenceKey("oracle", "key")], &ref); err != nil || a.err != nil {
		t.Fatal(err, a.err)
	}
	if got := strings.Join(ref.Rest, " "); got != "/opt/new/x /usr/bin/tool" || a.c.State != record.Confirmed ||
		!strings.Contains(a.c.Why, got[:8]) || len(a.plays) != 3 {
		t.Errorf("%q, %+v, %d plays", got, a.c, len(a.plays))
	}
	for i, want := range []string{"/app/a", "/app/a", "/app/a /opt/new/x /usr/bin/tool"} {
		if got := kept(a.plays[i], names); got != want {
			t.Errorf("play %d has %s, want %s", i, got, want)
		}
	}
	for _, c := range []struct {
		rewards []float64
		want    string
	}{{[]float64{0, 0, 1, 1}, "/usr/bin/tool"}, {[]float64{0, 0, 1, 0}, "/opt/new/x /usr/bin/tool"}} {
		b := ask(t, trial{oracle: true, names: names, found: []string{"/usr/bin/tool", "/app/a"}, rewards: c.rewards})
		var ref reference
		if err := json.Unmarshal(b.stored[referenceKey("oracle", "key")], &ref); err != nil ||
			strings.Join(ref.Rest, " ") != c.want || *ref.Oracle != 1 || len(b.plays) != 4 {
			t.Errorf("%v: %+v, %d plays; want %s", c.rewards, ref, len(b.plays), c.want)
		}
	}
	if b := ask(t, trial{oracle: true, names: names}); b.c.State != record.Inapplicable || len(b.plays) != 3 {
		t.Errorf("%+v, %d plays", b.c, len(b.plays))
	}
	more := append(names, "/usr/bin/other", "/opt/new/y", "/opt/new/x/z")
	b := ask(t, trial{stored: &ref, why: "used", names: more, rewards: []float64{1}})
	if got := kept(b.plays[0], more); b.c.State != record.Confirmed || got != "/app/a /opt/new/x /usr/bin/tool" {
		t.Errorf("%+v: %s", b.c, got)
	}
	c := ask(t, trial{stored: &ref, why: "used", names: names, work: &Work{Paths: []string{"/app"}, Unkept: true}})
	if c.c.State != record.Unconfirmed || !strings.Contains(c.c.Why, "no more was kept") {
		t.Errorf("%+v", c.c)
	}
}

// kept are the names that a play has.
func kept(r Replay, names []string) string {
	var out []string
	for _, name := range names {
		if !r.Without(strings.TrimSuffix(name, "/")) {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
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
