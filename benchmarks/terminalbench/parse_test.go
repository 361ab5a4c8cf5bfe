package terminalbench

import (
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks"
)

// What v1 takes for success is none here: no test at all, a second word on a test, a summary that
// somebody else printed.
func TestJudge(t *testing.T) {
	head := "======= short test summary info =======\n"
	for name, c := range map[string]struct {
		task  Task
		out   string
		value float64
		flags []string
		why   string
	}{
		"passed": {Task{Parser: "pytest"}, head + "PASSED a::b\nSKIPPED a::c\n", 1, nil, ""},
		"failed": {Task{Parser: "pytest"}, head + "PASSED a::b\nFAILED a::c - x\n", 0, nil,
			"1 of 2 tests did not pass: c"},
		"empty": {Task{Parser: "pytest"}, head + "1 passed in 0.1s\n", 0,
			[]string{benchmarks.FlagNoReward, FlagNoTests}, "no test is named"},
		"parse error": {Task{Parser: "pytest"}, "Killed\n", 0, []string{benchmarks.FlagNoReward, FlagParse},
			"parse_error: "},
		"second word": {Task{Parser: "pytest"}, head + "FAILED a::b - x\nPASSED a::b\n", 0, []string{FlagConflict},
			"1 of 1"},
		"two heads": {Task{Parser: "pytest"}, head + "PASSED a::z\n" + head + "PASSED a::b\n", 1,
			[]string{FlagSummaries}, ""},
		"their script": {Task{Parser: "pytest", SummaryHeaders: 1}, head + "FAILED a::b - x\n" + head + "FAILED all\n",
			0, nil, "2 of 2"},
		"mlebench": {Task{Parser: "mlebench"},
			"MLEBench results starts here\nALL TESTS PASSED\nMLEBench results ends here\n", 1, nil, ""},
		"two markers": {Task{Parser: "mlebench"},
			strings.Repeat("MLEBench results starts here\nALL TESTS PASSED\nMLEBench results ends here\n", 2), 0,
			[]string{FlagSummaries}, "1 of 1"},
	} {
		x := &grading{task: &c.task}
		r := x.judge(c.out)
		p := r.Primary()
		if p == nil || p.Name != "is_resolved" || *p.Value != c.value || !strings.Contains(p.Why, c.why) ||
			c.why == "" && p.Why != "" {
			t.Errorf("%s: %+v", name, p)
		}
		slices.Sort(r.Flags)
		slices.Sort(c.flags)
		if !slices.Equal(r.Flags, c.flags) {
			t.Errorf("%s: flags %q, want %q", name, r.Flags, c.flags)
		}
	}
}
