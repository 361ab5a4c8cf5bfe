package assistantbench

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// Score grades an answer from 0 to 1. Depending on the expected answer it compares a number by
// ratio, a text by its words, several texts in any order, or the fields of several objects in any
// order. The answer may be JSON.
//
// The result equals that of the published scorer, except where that one raises an exception: a list
// of one number counts as that number, and an answer that does not fit scores 0.
func Score(answer, right string) float64 {
	var p pyrepr.Value = pyrepr.Str(answer)
	if v, err := pyrepr.FromJSON([]byte(strings.TrimSpace(answer))); err == nil {
		p = v
	}
	var lines []string
	for l := range strings.SplitSeq(right, "\n") {
		if pyrepr.Strip(l) != "" {
			lines = append(lines, l)
		}
	}
	want, kind := parse(lines)
	p = fix(p, kind)
	switch v := p.(type) {
	case pyrepr.Str:
		if v == "" {
			return 0
		}
	case pyrepr.List:
		if len(v) == 0 || len(v) > mostItems || kind == number && len(v) > 1 {
			return 0
		}
	case pyrepr.Dict:
		if len(v) == 0 {
			return 0
		}
	}
	switch kind {
	case number:
		f, ok := asFloat(p)
		if !ok {
			return 0
		}
		return near(f, float64(want.(pyrepr.Float)))
	case objects:
		return alignObjects(p.(pyrepr.List), want.(pyrepr.List))
	}
	return words(p, want)
}

// mostItems limits the work spent on an answer. No expected answer has a hundredth of that.
const mostItems = 10_000

type kind int

const (
	number  kind = iota // one line, a number
	text                // one line
	texts               // several lines
	objects             // each line is JSON; also used if there are no lines
)

// parse determines the kind and value of the expected answer.
func parse(lines []string) (pyrepr.Value, kind) {
	if len(lines) == 1 {
		if f, ok := plain(lines[0], true); ok {
			return pyrepr.Float(f), number
		}
	}
	var list, plainly pyrepr.List
	for _, l := range lines {
		plainly = append(plainly, pyrepr.Str(l))
		if v, err := pyrepr.FromJSON([]byte(quotes.Replace(l))); err == nil {
			list = append(list, v)
		}
	}
	switch {
	case len(list) == len(lines):
		return list, objects
	case len(lines) == 1:
		return plainly[0], text
	}
	return plainly, texts
}

// quotes converts objects as printed by Python to JSON.
var quotes = strings.NewReplacer("{'", `{"`, "', '", `", "`, "': '", `": "`, "'}", `"}`, "': ", `": `)

// plain parses a number in everyday notation: with a unit, a currency or a decimal comma. If area
// is set, a unit of area may be spelled out.
func plain(s string, area bool) (float64, bool) {
	for _, unit := range []string{"$", "%", "sqft"} {
		s = strings.ReplaceAll(s, unit, " ")
	}
	s = strings.ReplaceAll(pyrepr.Strip(s), ",", ".")
	if area {
		s = strings.ReplaceAll(s, " square kilometers", "")
	}
	return float(s)
}

var floating = regexp.MustCompile(`^(?i)[+-]?(([0-9](_?[0-9])*\.?|([0-9](_?[0-9])*)?\.[0-9](_?[0-9])*)(e[+-]?[0-9](_?[0-9])*)?|inf|infinity|nan)$`)

// float is Python's float for a string.
func float(s string) (float64, bool) {
	s = pyrepr.Strip(s)
	if !floating.MatchString(s) {
		return 0, false
	}
	f, _ := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64) // out of range gives infinity
	return f, true
}

func asFloat(v pyrepr.Value) (float64, bool) {
	switch v := v.(type) {
	case pyrepr.Float:
		return float64(v), true
	case pyrepr.Int:
		f, _ := strconv.ParseFloat(string(v), 64)
		return f, true
	case pyrepr.Bool:
		if v {
			return 1, true
		}
		return 0, true
	case pyrepr.Str:
		return float(string(v))
	}
	return 0, false
}

// fix converts an answer to the form of the expected one.
func fix(p pyrepr.Value, k kind) pyrepr.Value {
	if list, ok := p.(pyrepr.List); ok && len(list) == 1 {
		switch v := list[0].(type) {
		case pyrepr.Int:
			p = v
		case pyrepr.Str:
			if v != "" && strings.TrimFunc(string(v), unicode.IsNumber) == "" {
				p = v
			}
		}
	}
	if _, ok := p.(pyrepr.List); ok {
		return p
	}
	s, isText := p.(pyrepr.Str)
	p = numbers(p, true)
	if k != objects {
		return p
	}
	if _, still := p.(pyrepr.Str); !isText || !still {
		return pyrepr.List{p}
	}
	var list pyrepr.List
	for l := range strings.SplitSeq(string(s), "\n") {
		v, err := pyrepr.FromJSON([]byte(l))
		if err != nil {
			return pyrepr.List{p}
		}
		list = append(list, v)
	}
	return list
}

// numbers converts ints, and texts that are numbers, to floats.
func numbers(v pyrepr.Value, area bool) pyrepr.Value {
	switch x := v.(type) {
	case pyrepr.Int:
		f, _ := asFloat(x)
		return pyrepr.Float(f)
	case pyrepr.Str:
		if f, ok := plain(string(x), area); ok {
			return pyrepr.Float(f)
		}
	}
	return v
}

// near is 1 for equal numbers, and decreases with the logarithm of their ratio to 0 at a ratio of
// e.
func near(a, b float64) float64 {
	if a == 0 && b == 0 {
		return 1
	}
	for _, p := range []*float64{&a, &b} {
		if *p == 0 {
			*p = 1e-4
		}
	}
	s := 1 - math.Log(max(a, b)/min(a, b))
	if !(s > 0) { // NaN if one of them is negative
		return 0
	}
	return min(s, 1) // two negative numbers could give more than 1
}
