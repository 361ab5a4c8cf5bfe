package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/browsergym/recordings"
)

// A reason is why fields of a page may differ from their recording: a row of the table of what is
// unstable in the recordings' README ("README: …"), or a numbered cause of docs/fidelity.md. It
// holds only where, apart from what it speaks of, nothing differs.
type reason struct {
	name   string
	pages  *regexp.Regexp // of which it speaks
	fields *regexp.Regexp
	apart  func(string) string // what is left when that of which it speaks is taken away; nil: nothing is
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

// cause is why a field differs; "" is none that is known.
func cause(h *recordings.Header, _ *recordings.Observation, d difference) string {
	for _, r := range reasons {
		if r.pages.MatchString(h.TaskName()) && r.fields.MatchString(d.field) && r.apart(d.got) == r.apart(d.want) {
			return r.name
		}
	}
	return ""
}

// moving is what depends on where the moving button of a page is.
var moving = regexp.MustCompile(`(?m)(\[27\]|bid="27")[^>\n]*|^27 .*`)

// selects are lines of a page's log of events.
var selects = regexp.MustCompile(`(?m)^\t*InlineTextBox '(select in)?'(\n|$)|select in\s`)

var number = regexp.MustCompile(` d="[^"]*"|-?\d+(\.\d+)?(e-?\d+)?`)

// numbers takes away where and how large things are, and the curves that a drawing in motion is
// made of.
func numbers(s string) string { return number.ReplaceAllString(s, "#") }

// terminal takes the cursor away, which comes and goes, the focus, which comes with a timer, and
// blanks, which depend on what was drawn before a key came.
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

// day is the date that the page shows, and where the element is that it is in: letters are not
// equally wide.
var day = regexp.MustCompile(`(?m)Last login: [A-Z][a-z]{2} [A-Z][a-z]{2} \d+ \d{4}|^20 .*|(\[20\] |bid="20")[^>\n]*`)

var cursor = regexp.MustCompile(`(?m), focused|^2[34] .*|^\t*generic\n|\s*<span [^>]*id="input-flicker"[^>]*>\s*█\s*</span>`)

// stock takes the price and its curve away.
func stock(s string) string {
	return strings.ReplaceAll(prices.ReplaceAllString(s, ""), "\n\n", "\n")
}

var prices = regexp.MustCompile(`(?m)^\s*(\[20\] generic.*|StaticText '(\$[\d.]+)?'|InlineTextBox '(\$[\d.]+)?'|\$[\d.]+|</?circle.*)\n|^20 .*|bid="20"[^>\n]*`)

// classes puts the names of classes in order.
func classes(s string) string {
	return class.ReplaceAllStringFunc(s, func(s string) string {
		all := strings.Fields(strings.Trim(strings.TrimPrefix(s, "class="), `"`))
		slices.Sort(all)
		return strings.Join(all, " ")
	})
}

var class = regexp.MustCompile(`class="[^"]*"`)

// without takes a line that begins with what, and all that is below it, out of a tree.
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

// lines are those of a log, each once: how often a call was tried depends on the machine.
func lines(s string) string {
	all := strings.Split(retries.ReplaceAllString(strings.ReplaceAll(s, `\n`, "\n"), ""), "\n")
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "\n")
}

// retries are lines of a log that tell of one more try, and how long it had to wait.
var retries = regexp.MustCompile(`attempt #\d+|waiting \d+ms`)
