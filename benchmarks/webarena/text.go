package webarena

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// clean removes a pair of quotes and lowercases; for WebArena it also trims white space.
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

// includes reports whether got contains want: as a substring, or as a word if a substring would
// match too easily (a digit is part of many numbers). WebArena requires a word only if the
// reference is alone and has one character, VisualWebArena whenever it is a single word.
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

// anyIncluded is includes for any of several alternatives.
func (d Dialect) anyIncluded(want, got string) bool {
	for w := range strings.SplitSeq(want, or) {
		if d.includes(w, got, false) {
			return true
		}
	}
	return false
}

// or separates alternatives.
const or = " |OR| "

// answer implements string_match.
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
			// Here the judge's verdict replaces everything before it: explaining why a task cannot
			// be done is as good as saying that it cannot.
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
					break // skip the judge, because its calls cost money
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

// unmet returns the first condition (">= 3 |OR| == 0") that a number does not satisfy, or "". Text
// that is not a whole number satisfies none.
func unmet(text string, conditions []string) (string, error) {
	s := strings.ReplaceAll(pyrepr.Strip(text), ",", "")
	if !integer.MatchString(s) {
		return "a whole number", nil
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil {
		v = math.Inf(1) // too large for any condition except >
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

// holds checks one condition, with the published code's tolerance.
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
		_ = left // the left side is ignored
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
