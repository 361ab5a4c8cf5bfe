package verify

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/record"
)

func show(scores []record.Score) string {
	var b strings.Builder
	for _, s := range scores {
		mark := ""
		if s.Primary {
			mark = "*"
		}
		v := "-"
		if s.Value != nil {
			v = fmt.Sprint(*s.Value)
		}
		fmt.Fprintf(&b, "%s%s=%s", mark, s.Name, v)
		if s.Text != "" {
			fmt.Fprintf(&b, "(%s)", s.Text)
		}
		b.WriteString(" ")
	}
	return strings.TrimSpace(b.String())
}

func TestRewards(t *testing.T) {
	const none = "\x00" // no such file
	for _, c := range []struct {
		js, txt string
		want    string // scores, or the name of an error
		flags   string
	}{
		{none, none, errNotFound, ""},
		{none, "1\n", "*reward=1", ""},
		{none, " 1.0\n", "*reward=1", ""},
		{none, "-0.25", "*reward=-0.25", ""},
		{none, "17", "*reward=17", ""},
		{none, "1e-3", "*reward=0.001", ""},
		{none, "1_000.5", "*reward=1000.5", ""},
		{none, ".5", "*reward=0.5", ""},
		{none, "", errEmpty, ""},
		{none, " \n", errEmpty, ""},
		{none, "nan", errParse, ""},
		{none, "inf", errParse, ""},
		{none, "-Infinity", errParse, ""},
		{none, "1e400", errParse, ""},
		{none, "0x10", errParse, ""},
		{none, "1 2", errParse, ""},
		{none, "passed", errParse, ""},
		{none, "1\x00", errParse, ""},
		{`{"reward": 1}`, "0", "*reward=1", ""}, // json first
		{`{"reward": 0.5, "speed": 2}`, none, "*reward=0.5 speed=2", ""},
		{`{"accuracy": 0.5}`, none, "*accuracy=0.5", ""},
		{`{"a": 1, "b": 0, "c": 0.5}`, none, "*mean=0.5 a=1 b=0 c=0.5", ""},
		{`{"reward": -3}`, none, "*reward=-3", ""},
		{`{"reward": true, "x": false}`, none, "*reward=1(true) x=0(false)", ""},
		{`{"reward": 1, "note": "fine", "l": [1]}`, none, "*reward=1 note=-(fine) l=-([1])", FlagTolerant},
		{`{"note": "fine"}`, "0.5", "*reward=0.5 note=-(fine)", FlagTolerant},
		{`{"reward": "1"}`, "0.5", "*reward=0.5", FlagTolerant},
		{`{"note": "fine"}`, none, errParse, ""},
		{`{}`, "1", "*reward=1", FlagTolerant},
		{`{}`, none, errParse, ""},
		{`{"reward": null}`, none, errParse, ""},
		{`{"reward": 1, "reward": 0}`, none, "*reward=0", ""},
		{"", "1", errEmpty, ""},
		{"[1]", "1", errParse, ""},
		{"1", "1", errParse, ""},
		{`{"reward": NaN}`, "1", errParse, ""},
		{`{"reward": Infinity}`, none, errParse, ""},
		{`{"reward": 1e999}`, none, errParse, ""},
		{`{"reward": 1} x`, none, errParse, ""},
		{`{"reward": 1`, none, errParse, ""},
		{`{"a\u0000": 1}`, none, "*a\ufffd=1", ""},
	} {
		var js, txt []byte
		if c.js != none {
			js = []byte(c.js)
		}
		if c.txt != none {
			txt = []byte(c.txt)
		}
		scores, flags, err := readRewards(js, txt)
		got := show(scores)
		var bad *rewardError
		if errors.As(err, &bad) {
			got = bad.Name
		} else if err != nil {
			t.Errorf("%q, %q: an error that is no rewardError: %v", c.js, c.txt, err)
		}
		if got != c.want || strings.Join(flags, ",") != c.flags {
			t.Errorf("%q, %q: %s, flags %v; want %s, flags %q", c.js, c.txt, got, flags, c.want, c.flags)
		}
	}
	many := `{"k0":1`
	for i := 1; i <= maxKeys; i++ {
		many += fmt.Sprintf(`,"k%d":1`, i)
	}
	if _, _, err := readRewards([]byte(many+"}"), nil); err == nil {
		t.Error("any number of keys is taken")
	}
}

// Whatever a verifier writes, its scores are such as the harness takes: an agent may be who wrote
// it.
func TestRewardsFit(t *testing.T) {
	object := func(name string, n int, value string) []byte {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf("%q:%s", fmt.Sprint(name, i), value))
		}
		return []byte("{" + strings.Join(keys, ",") + "}")
	}
	for _, c := range []struct {
		name string
		n    int
		js   string
		txt  string
	}{
		{"as many keys as may be", maxKeys, "0", ""},
		{"no numbers", maxKeys, `"x"`, "1"},
		{"large numbers", 7, "1e50", ""},
		{"numbers whose squares are infinite", 7, "1e300", "1"},
		{"one too many", maxKeys + 1, "0", ""},
	} {
		var stages []benchmarks.Result
		for step := range 3 {
			var r benchmarks.Result
			scores, flags, err := readRewards(object(fmt.Sprintf("step%d-", step), c.n, c.js), []byte(c.txt))
			r = benchmarks.Result{Scores: scores, Flags: flags}
			if err != nil {
				r = NoReward(err.Error())
			}
			stages = append(stages, r)
		}
		all, err := Reduce("mean", stages)
		if err != nil {
			t.Error(err)
		}
		for _, r := range append(stages, all) {
			if n := len(r.Scores); n > benchmarks.MaxScores {
				t.Errorf("%s: %d scores", c.name, n)
			}
			if r.Primary() == nil {
				t.Errorf("%s: no primary score", c.name)
			}
			for _, s := range r.Scores {
				if s.Value != nil && math.Abs(*s.Value) > benchmarks.MaxScore {
					t.Errorf("%s: %v", c.name, *s.Value)
				}
			}
		}
	}
}

func FuzzRewards(f *testing.F) {
	f.Add([]byte(`{"reward": 1, "x": "y"}`), []byte("1"))
	f.Fuzz(func(t *testing.T, js, txt []byte) {
		scores, _, err := readRewards(js, txt)
		if err == nil {
			if n := len(slices.DeleteFunc(scores, func(s record.Score) bool { return !s.Primary })); n != 1 {
				t.Errorf("%d primary scores", n)
			}
		}
		readCTRF(js)
		readPytest(txt)
	})
}

func TestReduce(t *testing.T) {
	one := func(json string) benchmarks.Result {
		s, _, err := readRewards([]byte(json), nil)
		if err != nil {
			t.Fatal(err)
		}
		return benchmarks.Result{Scores: s}
	}
	for _, c := range []struct {
		strategy string
		stages   []benchmarks.Result
		want     string
	}{
		{"mean", []benchmarks.Result{one(`{"reward": 1}`), one(`{"reward": 0}`)}, "*reward=0.5"},
		{"final", []benchmarks.Result{one(`{"reward": 1}`), one(`{"reward": 0}`)}, "*reward=0"},
		{"mean", []benchmarks.Result{one(`{"reward": 1, "a": 1}`), one(`{"reward": 0}`)}, "*reward=0.5 a=0.5"},
		{"mean", []benchmarks.Result{one(`{"a": 1, "b": 1}`), one(`{"a": 0, "b": 1}`)}, "*mean=0.75 a=0.5 b=1"},
		{"mean", []benchmarks.Result{one(`{"reward": 1}`), NoReward("gone")}, "*reward=0.5"},
		{"mean", []benchmarks.Result{one(`{"a": 1}`), NoReward("gone")}, "*a=0.5"},
		{"mean", []benchmarks.Result{NoReward("gone"), NoReward("gone")}, "*reward=0"},
		{"mean", []benchmarks.Result{one(`{"reward": 2}`)}, "*reward=2"},
	} {
		r, err := Reduce(c.strategy, c.stages)
		if got := show(r.Scores); err != nil || got != c.want {
			t.Errorf("%s of %d stages: %s, %v; want %s", c.strategy, len(c.stages), got, err, c.want)
		}
	}
}

func TestReports(t *testing.T) {
	list := func(tests []record.Test) string {
		var out []string
		for _, x := range tests {
			s := x.Name + " " + x.Status
			if x.Message != "" {
				s += " (" + x.Message + ")"
			}
			out = append(out, s)
		}
		return strings.Join(out, "; ")
	}
	ctrf := `{"results": {"tool": {"name": "pytest"}, "tests": [
		{"name": "test_a.py::test_x", "status": "passed", "message": "unused"},
		{"name": "test_y", "status": "failed", "message": "expected 1"},
		{"name": "z", "suite": ["s", "t"], "status": "pending"},
		{"name": "w", "status": "weird", "trace": "tr"}]}}`
	if got, want := list(readCTRF([]byte(ctrf))),
		"test_a.py::test_x passed; test_y failed (expected 1); s/t::z skipped; w error (tr)"; got != want {
		t.Errorf("CTRF: %s", got)
	}
	for _, bad := range []string{"", "{}", "[]", `{"results": {"tests": 3}}`, `{"results": {"tests": [3]}}`} {
		if got := readCTRF([]byte(bad)); len(got) != 0 {
			t.Errorf("%q: %v", bad, got)
		}
	}
	out := `noise PASSED a::b
=========================== short test summary info ============================
PASSED fake.py::test_fake
=========================== short test summary info ============================
PASSED ../tests/test_outputs.py::test_one
` + "\x1b[31mFAILED\x1b[0m test_outputs.py::TestX::test_two[a - b] - AssertionError: no\n" +
		`ERROR test_outputs.py::test_one - teardown
XFAIL t.py::test_three
XPASS t.py::test_four
SKIPPED [1] t.py:7: not here
========================= 1 failed, 1 passed in 0.02s ==========================
PASSED late::x
`
	if got, want := list(readPytest([]byte(out))),
		"test_one error (teardown); TestX::test_two[a - b] failed (AssertionError: no); test_three passed; test_four "+
			"failed; t.py:7: not here skipped"; got != want {
		t.Errorf("pytest: %s", got)
	}
	if n := len(readPytest([]byte(strings.Repeat("x", 1<<20)))); n != 0 {
		t.Errorf("%d tests in no summary", n)
	}
}

func TestExclude(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.log", "out/a.log", true}, {"*.log", "out/a.logs", false}, {"cache", "out/cache/x", true},
		{"cache", "out/cached", false},
		{"out/cache/", "out/cache/x", true}, {"a*c", "out/ab/xc", true}, {"?.txt", "out/a.txt", true},
		{"[ab].txt", "out/b.txt", true},
		{"[!ab].txt", "out/b.txt", false}, {"[", "out/[", true}, {"./x", "out/x", true},
	} {
		if got := excluder([]string{c.pattern})(c.name); got != c.want {
			t.Errorf("%q on %q: %v", c.pattern, c.name, got)
		}
	}
}

func TestLinkAllowed(t *testing.T) {
	roots := []string{"/app", "/data/out.json"}
	for _, c := range []struct {
		at, link string
		want     bool
	}{
		{"/app/x", "y", true}, {"/app/x", "/app/y", true}, {"/app/d/x", "../y", true},
		{"/app/x", "../tests/expected", false}, {"/app/x", "/tests/t", false},
		{"/app/x", "/proc/self/environ", false}, {"/app/x", "d/../../tests", false},
		{"/app/x", "/usr/bin/python3", true}, {"/app/x", "/etc/passwd", false},
		{"/app/x", "/data/out.json", true}, {"/app/x", "/logs/verifier/reward.txt", false}, {"/app/x", "/", false},
		{"/app/x", "/appx", false},
	} {
		if got := linkAllowed(c.at, c.link, roots); got != c.want {
			t.Errorf("%s -> %s: %v", c.at, c.link, got)
		}
	}
}
