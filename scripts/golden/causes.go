package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/browsergym/recordings"
)

// A reason explains why fields of a page may differ from their recording. It is a row of the table
// of unstable values in the recordings' README ("README: …"), or a numbered cause in
// docs/fidelity.md. It applies only if nothing else differs.
type reason struct {
	name   string
	pages  *regexp.Regexp // pages it applies to
	fields *regexp.Regexp
	apart  func(string) string // removes the parts that it explains; nil removes everything
}

var reasons = []reason{
	{"README: click-pie", regexp.MustCompile(`^click-pie`), regexp.MustCompile(`^text (dom|prune)|^boxes`), numbers},
	{"README: terminal", regexp.MustCompile(`^terminal$`), regexp.MustCompile(`^text|^boxes|^visibility|^focused`),
		terminal},
	{"3: the day on which it is played", regexp.MustCompile(`^terminal$`), regexp.MustCompile(`^text|^boxes`),
		func(s string) string { return day.ReplaceAllString(terminal(s), "") }},
	{"README: stock-market", regexp.MustCompile(`^stock-market$`), regexp.MustCompile(`^text|^boxes`), stock},
	{"README: form-sequence-3", regexp.MustCompile(`^form-sequence-3$`), regexp.MustCompile(`^text (dom|prune)`),
		classes},
	{"README: graphics", regexp.MustCompile(`^graphics`), regexp.MustCompile(`^text ax`),
		func(s string) string { return without(s, "slider 'video time scrubber'") }},
	{"README: errors", regexp.MustCompile(`^errors`), regexp.MustCompile(`^text|^boxes|^visibility`),
		func(s string) string { return moving.ReplaceAllString(s, "") }},
	{"README: call logs", regexp.MustCompile(``), regexp.MustCompile(`^call log`), lines},
	{"1: order of select and Delete", regexp.MustCompile(`^events$`), regexp.MustCompile(`^text`),
		func(s string) string { return selects.ReplaceAllString(without(s, "StaticText 'select in'"), "") }},
}

// cause returns why a field differs, or "" if no cause is known.
func cause(h *recordings.Header, _ *recordings.Observation, d difference) string {
	for _, r := range reasons {
		if r.pages.MatchString(h.TaskName()) && r.fields.MatchString(d.field) && r.apart(d.got) == r.apart(d.want) {
			return r.name
		}
	}
	return ""
}

// moving matches values that depend on the position of a page's moving button.
var moving = regexp.MustCompile(`(?m)(\[27\]|bid="27")[^>\n]*|^27 .*`)

// selects matches lines of a page's event log.
var selects = regexp.MustCompile(`(?m)^\t*InlineTextBox '(select in)?'(\n|$)|select in\s`)

var number = regexp.MustCompile(` d="[^"]*"|-?\d+(\.\d+)?(e-?\d+)?`)

// numbers removes positions and sizes, and the curves of a moving drawing.
func numbers(s string) string { return number.ReplaceAllString(s, "#") }

// terminal removes the cursor, which blinks, the focus, which is set by a timer, and blanks, which
// depend on what was drawn before a key was pressed.
func terminal(s string) string {
	if strings.HasPrefix(s, `"`) { // the focused element itself
		return ""
	}
	for _, cut := range []string{"[24] generic", "StaticText '█'", "InlineTextBox '█'", "StaticText ''",
		"InlineTextBox ''"} {
		s = without(s, cut)
	}
	return cursor.ReplaceAllString(s, "")
}

// day matches the date shown by the page, and the position of its element, because letters have
// different widths.
var day = regexp.MustCompile(`(?m)Last login: [A-Z][a-z]{2} [A-Z][a-z]{2} \d+ \d{4}|^20 .*|(\[20\] |bid="20")[^>\n]*`)

var cursor = regexp.MustCompile(`(?m), focused|^2[34] .*|^\t*generic\n|\s*<span [^>]*id="input-flicker"[^>]*>\s*█\s*</span>`)

// stock removes the price and its curve.
func stock(s string) string {
	return strings.ReplaceAll(prices.ReplaceAllString(s, ""), "\n\n", "\n")
}

var prices = regexp.MustCompile(`(?m)^\s*(\[20\] generic.*|StaticText '(\$[\d.]+)?'|InlineTextBox '(\$[\d.]+)?'|\$[\d.]+|</?circle.*)\n|^20 .*|bid="20"[^>\n]*`)

// classes sorts the names of classes.
func classes(s string) string {
	return class.ReplaceAllStringFunc(s, func(s string) string {
		all := strings.Fields(strings.Trim(strings.TrimPrefix(s, "class="), `"`))
		slices.Sort(all)
		return strings.Join(all, " ")
	})
}

var class = regexp.MustCompile(`class="[^"]*"`)

// without removes a line that begins with what, and everything below it, from a tree.
func without(tree, what string) string {
	var out []string
	depth := -1
	for line := range strings.Lines(tree) {
		bare := strings.TrimLeft(line, "\t")
		in := len(line) - len(bare)
		if depth >= 0 && in > depth {
			continue
		}
		depth = -1
		if strings.HasPrefix(bare, what) {
			depth = in
			continue
		}
		out = append(out, strings.TrimRight(line, "\n"))
	}
	return strings.Join(out, "\n")
}

// lines returns the lines of a log, sorted and without duplicates, because the number of retries
// depends on the machine.
func lines(s string) string {
	all := strings.Split(retries.ReplaceAllString(strings.ReplaceAll(s, `\n`, "\n"), ""), "\n")
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "\n")
}

// retries matches log lines about a retry and its delay.
var retries = regexp.MustCompile(`attempt #\d+|waiting \d+ms`)
