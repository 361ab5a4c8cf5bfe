package terminalbench

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/harness/record"
)

// Flags of a row, beside benchmarks.FlagNoReward; docs/grading.md explains each.
const (
	// FlagParse: the tests' output is not what the parser knows (v1's parse_error).
	FlagParse = "parse_error"
	// FlagTimeout: the tests ran into their limit (v1's test_timeout).
	FlagTimeout = "test_timeout"
	// FlagNoTests: the output names no test at all, which v1 takes for success.
	FlagNoTests = "no_tests"
	// FlagSummaries: pytest's headline stands in the output more often than pytest and the test
	// scripts print it.
	FlagSummaries = "second_summary"
	// FlagConflict: a test is told both to pass and to fail.
	FlagConflict = "conflicting_results"
)

// tampering are the flags of tampering that verify does not know.
var tampering = []string{FlagSummaries, FlagConflict}

// A parser reads what the tests printed. ok is false where the output is not of its form, for the
// reason in why.
type parser func(out string) (tests []record.Test, flags []string, why string, ok bool)

// parsers are those of v1 whose form is known.
var parsers = map[string]parser{
	"pytest":   pytest,
	"swebench": marked("SWEBench", "PASSED"),
	"mlebench": marked("MLEBench", "ALL TESTS PASSED"),
}

// unknownParser says why tasks with a parser cannot be graded here.
func unknownParser(name string) string {
	if slices.Contains([]string{"swelancer", "sweperf", "long_cli"}, name) {
		return fmt.Sprintf("the form that the parser %s reads is not published; grading by a guess would be "+
			"worse than none", name)
	}
	return fmt.Sprintf("the parser %q is not known; those that are: pytest, swebench, mlebench", name)
}

var (
	headline = regexp.MustCompile(`(?i)=+[ \t]*short test summary info[ \t]*=+`)
	outcome  = regexp.MustCompile(`^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\s+(.+)$`)
	ansi     = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")
)

// maxTests bounds the rows of one trial.
const maxTests = 5000

// pytest reads the lines after the first headline "short test summary info". A name is what follows
// the first "::".
//
// As in v1 every line counts, whoever printed it; but a test that is said to pass and to fail has
// failed, where v1 takes the last word.
func pytest(out string) (tests []record.Test, flags []string, why string, ok bool) {
	out = strings.ReplaceAll(ansi.ReplaceAllString(out, ""), "\r\n", "\n")
	at := headline.FindStringIndex(out)
	if at == nil {
		return nil, nil, `pytest's "short test summary info" is missing; run-tests.sh has to call pytest with -rA`,
			false
	}
	index := map[string]int{}
	for line := range strings.Lines(out[at[1]:]) {
		m := outcome.FindStringSubmatch(strings.TrimRight(line, " \r\n"))
		if m == nil || len(tests) == maxTests {
			continue
		}
		name, message := m[2], ""
		if i := strings.LastIndex(name, " - "); i >= 0 && (m[1] == "FAILED" || m[1] == "ERROR") {
			name, message = name[:i], name[i+3:]
		}
		if _, after, ok := strings.Cut(name, "::"); ok {
			name = after
		}
		t := record.Test{Name: score.Clip(score.Clean(name), 500), Status: statuses[m[1]]}
		if !passed(t) {
			t.Message = score.Clip(score.Clean(message), 2000)
		}
		i, again := index[t.Name]
		switch {
		case !again:
			index[t.Name] = len(tests)
			tests = append(tests, t)
		case passed(tests[i]) != passed(t):
			if !slices.Contains(flags, FlagConflict) {
				flags = append(flags, FlagConflict)
			}
			if !passed(t) {
				tests[i] = t
			}
		}
	}
	return tests, flags, "", true
}

var statuses = map[string]string{"PASSED": "passed", "XFAIL": "passed", "SKIPPED": "skipped", "FAILED": "failed",
	"XPASS": "failed", "ERROR": "error"}

// passed: a skipped test counts as passed, as in v1.
func passed(t record.Test) bool { return t.Status == "passed" || t.Status == "skipped" }

// marked is a parser of one verdict between two lines "NAME results starts here" and "NAME results
// ends here".
func marked(name, success string) parser {
	begin, end := name+" results starts here", name+" results ends here"
	return func(out string) ([]record.Test, []string, string, bool) {
		out = strings.ReplaceAll(out, "\r\n", "\n")
		_, rest, ok1 := strings.Cut(out, begin)
		i := strings.LastIndex(rest, end)
		if !ok1 || i < 0 {
			return nil, nil, fmt.Sprintf("%q and %q are not both in the output", begin, end), false
		}
		var flags []string
		if strings.Count(out, begin) > 1 || strings.Count(out, end) > 1 {
			flags = append(flags, FlagSummaries)
		}
		t := record.Test{Name: "tests", Status: "failed"}
		if verdict := strings.TrimSpace(rest[:i]); verdict == success {
			t.Status = "passed"
		} else {
			t.Message = score.Clip(score.Clean(verdict), 2000)
		}
		return []record.Test{t}, flags, "", true
	}
}

// failures says in a few words which tests did not pass.
func failures(tests []record.Test) string {
	var names []string
	n := 0
	for _, t := range tests {
		if !passed(t) {
			if n++; len(names) < 5 {
				names = append(names, t.Name)
			}
		}
	}
	more := ""
	if n > len(names) {
		more = ", …"
	}
	return fmt.Sprintf("%d of %d tests did not pass: %s%s", n, len(tests), strings.Join(names, ", "), more)
}
