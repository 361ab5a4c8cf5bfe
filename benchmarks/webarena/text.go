package webarena

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// clean takes a pair of quotes away and the difference of capitals; WebArena white space as well.
func (d Dialect) clean(s string) string {
	if d != Visual {
		s = pyrepr.Strip(s)
	}
	for _, q := range []string{"'", `"`} {
		if strings.HasPrefix(s, q) && strings.HasSuffix(s, q) {
			s = s[1:max(1, len(s)-1)]
			break
		}
	}
	return strings.ToLower(s)
}

func (d Dialect) equal(want, got string) bool { return d.clean(want) == d.clean(got) }

// includes reports whether a text holds another: as a part, or as a word where that would be too
// easy (a digit is part of many numbers). WebArena asks for a word only where the reference is
// alone and of one character, VisualWebArena wherever it is a single word.
func (d Dialect) includes(want, got string, alone bool) bool {
	want, got = d.clean(want), d.clean(got)
	word := alone && len([]rune(want)) == 1
	if d == Visual {
		word = true
	}
	if word && len(tokens(want)) == 1 {
		for _, t := range tokens(got) {
			if t == want {
				return true
			}
		}
		return false
	}
	return strings.Contains(got, want)
}

// anyIncluded is includes for alternatives.
func (d Dialect) anyIncluded(want, got string) bool {
	for w := range strings.SplitSeq(want, or) {
		if d.includes(w, got, false) {
			return true
		}
	}
	return false
}

// or stands between alternatives.
const or = " |OR| "

// answer is string_match.
func (e *Evaluator) answer(ctx context.Context, c *Config, text string) (float64, string, error) {
	d := e.Dialect
	got := d.clean(text)
	if len(c.Eval.Answers) == 0 {
		return 0, "", wrong("string_match without reference_answers")
	}
	score, why := 1.0, ""
	fail := func(format, want string) {
		if score = 0; why == "" {
			why = format + " " + strconv.Quote(want)
		}
	}
	for _, r := range c.Eval.Answers {
		if r.Many != (r.Name != "exact_match") && !(r.Name == "fuzzy_match" && r.Text == "N/A") {
			return 0, "", wrong("%s: a text where a list was expected, or a list where a text was", r.Name)
		}
		visual := d == Visual
		switch {
		case r.Name == "exact_match":
			if !d.equal(r.Text, got) {
				fail("not", r.Text)
			}
		case r.Name == "must_include":
			for _, w := range r.List {
				if visual && !d.anyIncluded(w, got) || !visual && !d.includes(w, got, len(r.List) == 1) {
					fail("without", w)
				}
			}
		case r.Name == "must_exclude" && visual:
			for _, w := range r.List {
				if d.includes(w, got, false) {
					fail("with", w)
				}
			}
		case r.Name == "one_of" && visual:
			found := false
			for _, w := range r.List {
				found = found || strings.Contains(got, d.clean(w))
			}
			if !found {
				fail("none of", strings.Join(r.List, ", "))
			}
		case r.Name == "required_values" && visual:
			w, err := unmet(got, r.List)
			if err != nil {
				return 0, "", err
			}
			if w != "" {
				fail("not", w)
			}
		case r.Name == "fuzzy_match" && !r.Many:
			// Here the judge's word takes the place of all before it: saying why a task cannot be
			// done is as good as saying that it cannot.
			if score != 0 && d.equal(r.Text, got) {
				continue
			}
			ok, err := e.sameReason(ctx, c.Intent, c.Eval.Note, got)
			if err != nil {
				return 0, "", err
			}
			score, why = 1, ""
			if !ok {
				fail("another reason than", c.Eval.Note)
			}
		case r.Name == "fuzzy_match":
			for _, w := range r.List {
				if score == 0 {
					break // the judge is paid for
				}
				ok, err := e.equivalent(ctx, c.Intent, w, got)
				if err != nil {
					return 0, "", err
				}
				if !ok {
					fail("does not mean", w)
				}
			}
		default:
			return 0, "", wrong("reference_answers: %q is not known", r.Name)
		}
	}
	return score, why, nil
}

var integer = regexp.MustCompile(`^[+-]?[0-9]+(_[0-9]+)*$`)

// unmet is the first condition (">= 3 |OR| == 0") that a number does not meet, "" if it meets all.
// What is no whole number meets none.
func unmet(text string, conditions []string) (string, error) {
	s := strings.ReplaceAll(pyrepr.Strip(text), ",", "")
	if !integer.MatchString(s) {
		return "a whole number", nil
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil {
		v = math.Inf(1) // too large for any condition but >
	}
	return unmetBy(v, conditions)
}

func unmetBy(v float64, conditions []string) (string, error) {
	for _, c := range conditions {
		met := false
		for alt := range strings.SplitSeq(c, or) {
			ok, err := holds(v, alt)
			if err != nil {
				return "", err
			}
			met = met || ok
		}
		if !met {
			return c, nil
		}
	}
	return "", nil
}

// holds checks one condition, with the tolerance of the published one.
func holds(v float64, condition string) (bool, error) {
	const slack = 1e-8
	for _, op := range []string{"<=", ">=", "==", "<", ">"} {
		left, right, ok := strings.Cut(condition, op)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(right), 64)
		if err != nil {
			return false, wrong("condition %q: no number", condition)
		}
		_ = left // it is not looked at
		switch op {
		case "<=":
			return v <= n+slack, nil
		case ">=":
			return v >= n-slack, nil
		case "==":
			return math.Abs(v-n) <= slack, nil
		case "<":
			return v < n+slack, nil
		}
		return v > n-slack, nil
	}
	return false, wrong("condition %q: no <=, >=, ==, < or >", condition)
}
