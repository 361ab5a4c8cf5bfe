package score

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// A Number is a number found in a text.
type Number struct {
	// canonical decimal digits such as "-1234.5", if written so: keeps large integers exact
	Text  string
	Value float64 // always finite
}

const digits = `(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+`

var (
	// A sign belongs to a number only if nothing precedes it from which it could subtract.
	number = regexp.MustCompile(`(?:^|[^\w.)\]}])([-+]?[$€£¥]?[-+]?)(` + digits + `)([eE][-+]?\d+)?(?:\s*/\s*(` +
		digits + `))?`)
	whole = regexp.MustCompile(`^([-+]?[$€£¥]?[-+]?)(` + digits + `)([eE][-+]?\d+)?(?:\s*/\s*(` + digits + `))?\s*%?$`)
	minus = strings.NewReplacer("−", "-", "–", "-", "\u00a0", " ", "\u202f", " ", `\$`, "$", `\%`, "%", `{,}`, ",",
		`\!`, "")
	boxed = regexp.MustCompile(`\\boxed\s*\{([^{}]*)\}`)
)

// ParseNumber parses a text that consists of a single number: 1,234.5 · $-3 · 50% · 2/3 · 1e6.
// Currency and percent signs are dropped. Numbers outside the range of float64 are rejected.
func ParseNumber(s string) (Number, bool) {
	m := whole.FindStringSubmatch(strings.TrimSpace(minus.Replace(s)))
	if m == nil {
		return Number{}, false
	}
	return parse(m)
}

// FindNumber returns the final number of an answer: the one after the last "####", else in the last
// \boxed{}, else after the last "ANSWER:", else the last one in the text.
func FindNumber(answer string) (Number, bool) {
	answer = clip(answer)
	if i := strings.LastIndex(answer, "####"); i >= 0 {
		line, _, _ := strings.Cut(strings.TrimSpace(answer[i+4:]), "\n")
		if n, ok := first(line); ok {
			return n, true
		}
	}
	if m := boxed.FindAllStringSubmatch(answer, -1); m != nil {
		if n, ok := first(m[len(m)-1][1]); ok {
			return n, true
		}
	}
	final := Final(answer)
	if final != strings.TrimSpace(answer) {
		if n, ok := first(final); ok {
			return n, true
		}
	}
	return last(answer)
}

func first(s string) (Number, bool) {
	if m := number.FindStringSubmatch(minus.Replace(s)); m != nil {
		return parse(m)
	}
	return Number{}, false
}

func last(s string) (n Number, ok bool) {
	for _, m := range number.FindAllStringSubmatch(minus.Replace(s), -1) {
		if x, good := parse(m); good {
			n, ok = x, true
		}
	}
	return n, ok
}

// parse converts sign, digits, exponent and divisor to a Number.
func parse(m []string) (Number, bool) {
	plain := strings.ReplaceAll(m[2], ",", "")
	if len(plain) > 1000 {
		return Number{}, false
	}
	v, err := strconv.ParseFloat(plain+m[3], 64)
	if err != nil { // out of range
		return Number{}, false
	}
	n := Number{Value: v}
	if m[3] == "" && m[4] == "" {
		n.Text = canonical(plain)
	}
	if m[4] != "" {
		d, err := strconv.ParseFloat(strings.ReplaceAll(m[4], ",", ""), 64)
		if err != nil || d == 0 {
			return Number{}, false
		}
		n.Value /= d
	}
	if strings.Contains(m[1], "-") {
		n.Value = -n.Value
		if n.Text != "" && n.Text != "0" {
			n.Text = "-" + n.Text
		}
	}
	return n, !math.IsInf(n.Value, 0) && !math.IsNaN(n.Value)
}

func canonical(s string) string {
	whole, frac, _ := strings.Cut(s, ".")
	whole, frac = strings.TrimLeft(whole, "0"), strings.TrimRight(frac, "0")
	if whole == "" {
		whole = "0"
	}
	if frac != "" {
		whole += "." + frac
	}
	return whole
}

func (n Number) String() string {
	if n.Text != "" {
		return n.Text
	}
	return strconv.FormatFloat(n.Value, 'g', -1, 64)
}

// near reports whether got is close enough to right.
func (s Spec) near(got, right Number) bool {
	if s.Tolerance == 0 && s.Relative == 0 && got.Text != "" && right.Text != "" {
		return got.Text == right.Text
	}
	// Ignore rounding errors, so that 0.1+0.2 equals 0.3.
	off := max(s.Tolerance, s.Relative*math.Abs(right.Value), 1e-12*math.Abs(right.Value))
	return math.Abs(got.Value-right.Value) <= off
}

func (s Spec) numeric() (Scorer, error) {
	for _, t := range []float64{s.Tolerance, s.Relative} {
		if t < 0 || math.IsNaN(t) || math.IsInf(t, 0) {
			return nil, fmt.Errorf("a tolerance of %v makes no sense", t)
		}
	}
	var right []Number
	for _, r := range s.Right {
		n, ok := ParseNumber(r)
		if !ok {
			return nil, fmt.Errorf("the right answer %q is not a number", Clip(r, 100))
		}
		right = append(right, n)
	}
	return func(answer string) Mark {
		got, ok := FindNumber(answer)
		if !ok {
			return mark(false, Final(answer), "the answer holds no number")
		}
		for _, r := range right {
			if s.near(got, r) {
				return mark(true, got.String(), "")
			}
		}
		return mark(false, got.String(), "want "+s.want())
	}, nil
}
