package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/benchmarks/score"
	"github.com/evalrun/evalrun/harness/record"
)

// maxTests bounds the rows that one verifier can bring.
const maxTests = 5000

// maxReport is how large a report may be.
const maxReport = 16 << 20

// readCTRF reads the tests of a report in Common Test Report Format. What is no such report has
// none.
func readCTRF(raw []byte) []record.Test {
	var report struct {
		Results struct {
			Tests []struct {
				Name    string          `json:"name"`
				Status  string          `json:"status"`
				Suite   json.RawMessage `json:"suite"` // a string, or a list of them
				Message string          `json:"message"`
				Trace   string          `json:"trace"`
			} `json:"tests"`
		} `json:"results"`
	}
	if json.Unmarshal(raw, &report) != nil {
		return nil
	}
	var out []record.Test
	for _, t := range report.Results.Tests {
		if len(out) == maxTests {
			break
		}
		name := t.Name
		var suite string
		var suites []string
		if json.Unmarshal(t.Suite, &suite) != nil && json.Unmarshal(t.Suite, &suites) == nil {
			suite = strings.Join(suites, "/")
		}
		if suite != "" && !strings.HasPrefix(name, suite) {
			name = suite + "::" + name
		}
		message := t.Message
		if message == "" {
			message = t.Trace
		}
		out = append(out, row(name, t.Status, message))
	}
	return out
}

// row is a test with bounds on every part.
func row(name, status, message string) record.Test {
	t := record.Test{Name: score.Clip(score.Clean(name), 500), Status: statusOf(status)}
	if t.Status != "passed" {
		t.Message = score.Clip(score.Clean(message), 2000)
	}
	return t
}

// statusOf maps the words of CTRF and pytest to the record's.
func statusOf(s string) string {
	switch s = strings.ToLower(strings.TrimSpace(s)); s {
	case "passed", "failed", "skipped", "error":
		return s
	case "xfail", "xfailed":
		return "passed"
	case "xpass", "xpassed":
		return "failed"
	case "pending", "todo", "disabled":
		return "skipped"
	case "broken", "errored":
		return "error"
	case "pass":
		return "passed"
	case "fail", "failure":
		return "failed"
	}
	return "error"
}

var (
	summary = regexp.MustCompile(`(?i)^=+ short test summary info =+\s*$`)
	outcome = regexp.MustCompile(`^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\s+(.+)$`)
	ansi    = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")
	counted = regexp.MustCompile(`^\[\d+\]\s+`)
)

// readPytest reads the tests of the last short test summary in what pytest -rA printed. A name is
// what follows the file ("test_a.py::").
func readPytest(out []byte) []record.Test {
	var tests []record.Test
	at := map[string]int{}
	within := false
	for line := range bytes.Lines(out) {
		if len(line) > 64<<10 {
			continue
		}
		text := strings.TrimRight(ansi.ReplaceAllString(string(line), ""), "\r\n ")
		switch {
		case summary.MatchString(text):
			within, tests, at = true, nil, map[string]int{}
			continue
		case within && strings.HasPrefix(text, "====="):
			within = false
			continue
		case !within:
			continue
		}
		m := outcome.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		name, message := m[2], ""
		switch m[1] {
		case "SKIPPED": // "[1] tests/test_a.py:7: the reason": no name of a test
			name = counted.ReplaceAllString(name, "")
		default:
			i := strings.Index(name, " - ")
			if b := strings.IndexByte(name, '['); b >= 0 && b < i { // a parameter may hold anything
				if end := strings.Index(name[b:], "] - "); end >= 0 {
					i = b + end + 1
				}
			}
			if i >= 0 {
				name, message = name[:i], name[i+3:]
			}
			if _, after, ok := strings.Cut(name, "::"); ok {
				name = after
			}
		}
		t := row(name, m[1], message)
		if i, again := at[t.Name]; again { // an error in the tear-down of a test that passed
			if tests[i].Status == "passed" {
				tests[i] = t
			}
			continue
		}
		if len(tests) == maxTests {
			break
		}
		at[t.Name] = len(tests)
		tests = append(tests, t)
	}
	return tests
}

// failures says in a few words which tests did not pass.
func failures(tests []record.Test) string {
	var names []string
	n := 0
	for _, t := range tests {
		if t.Status == "failed" || t.Status == "error" {
			if n++; len(names) < 5 {
				names = append(names, t.Name)
			}
		}
	}
	if n == 0 {
		return ""
	}
	more := ""
	if n > len(names) {
		more = ", …"
	}
	return fmt.Sprintf("%d of %d tests did not pass: %s%s", n, len(tests), strings.Join(names, ", "), more)
}
