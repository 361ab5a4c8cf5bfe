package score_test

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/benchmarks/score"
)

func TestScorers(t *testing.T) {
	for _, c := range []struct {
		spec  score.Spec
		right []string
		wrong []string
	}{
		{score.Spec{Scorer: "exact", Right: []string{"New York", "NYC"}},
			[]string{"New  York", " NYC\n", "ANSWER: NYC", "thinking…\n**Answer: New York**", "\"NYC\".", "`NYC`",
				"Final answer: NYC"},
			[]string{"new york", "NY", "", "New York City", "ANSWER:", "NYC or so"}},
		{score.Spec{Scorer: "exact", Right: []string{"The end, my friend"}, IgnoreCase: true, IgnorePunctuation: true,
			IgnoreArticles: true},
			[]string{"END MY FRIEND!", "an end: my... friend"}, []string{"end friend"}},
		{score.Spec{Scorer: "exact", Right: []string{"answer: x"}}, []string{"answer: x", "ANSWER: answer: x"},
			[]string{"y"}},
		{score.Spec{Scorer: "includes", Right: []string{"Blue Whale"}, IgnoreCase: true},
			[]string{"the blue\nwhale, of course"}, []string{"whale", ""}},
		{score.Spec{Scorer: "regex", Right: []string{`^\d{3}$`, "x+"}}, []string{"123", "axxa"},
			[]string{"12", "1234", "\n123\n"}},
		{score.Spec{Scorer: "regex", Right: []string{"(a|b"}[:0:0], IgnoreCase: true}, nil, nil},
		{score.Spec{Scorer: "choice", Right: []string{"b"}},
			[]string{"B", "(B)", "b.", "B) because A is wrong", "ANSWER: **B**", "Let me think: A?\nANSWER: B"},
			[]string{"A", "But", "", "AB", "ANSWER: A or B"}},
		{score.Spec{Scorer: "numeric", Right: []string{"70,000"}},
			[]string{"70000", "$70,000", "70000.00", "so 70,000 dollars.", "#### 70,000",
				"#### $70000\nthat is 3 times more", `\boxed{70{,}000}`, "70 000? no: ANSWER: 70000", "1 + 1 = 70000",
				"70,000%"},
			[]string{"7000", "70,000.5", "-70000", "", "seventy", "70000 and 1", "70000000", "#### 12 after 70000"}},
		{score.Spec{Scorer: "numeric", Right: []string{"-3"}}, []string{"-3", "−3", "-$3", "$-3", "x = -3", "(-3)"},
			[]string{"3", "5-3", "10 -  3"}},
		{score.Spec{Scorer: "numeric", Right: []string{"0.5"}}, []string{".5", "1/2", "5e-1", "0.50"},
			[]string{"5", "2/1", "1/0"}},
		{score.Spec{Scorer: "numeric", Right: []string{"9007199254740993"}}, []string{"9007199254740993"},
			[]string{"9007199254740992"}},
		{score.Spec{Scorer: "numeric", Right: []string{"3.14159"}, Tolerance: 0.01}, []string{"3.14", "3.15"},
			[]string{"3.1", "3.2"}},
		{score.Spec{Scorer: "numeric", Right: []string{"200"}, Relative: 0.05}, []string{"190", "210"},
			[]string{"189", "211"}},
		{score.Spec{Scorer: "numeric", Right: []string{"1"}}, nil,
			[]string{"NaN", "Inf", "1e999999999", "0x1", strings.Repeat("9", 5000), "1" + strings.Repeat(",000", 1000),
				strings.Repeat("7-", 100000), "\xff\x00"}},
	} {
		grade, err := c.spec.Compile()
		if len(c.spec.Right) == 0 {
			if err == nil {
				t.Errorf("%+v: no right answer is no error", c.spec)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", c.spec, err)
			continue
		}
		for _, a := range c.right {
			if m := grade(a); m.Value != 1 {
				t.Errorf("%s of %q: %q scores %v (%s)", c.spec.Scorer, c.spec.Right, a, m.Value, m.Why)
			}
		}
		for _, a := range c.wrong {
			if m := grade(a); m.Value != 0 || m.Why == "" {
				t.Errorf("%s of %q: %.60q scores %v (%q)", c.spec.Scorer, c.spec.Right, a, m.Value, m.Why)
			}
		}
	}
}

func TestBadSpecs(t *testing.T) {
	for want, s := range map[string]score.Spec{
		"unknown scorer":         {Scorer: "best", Right: []string{"x"}},
		"not a number":           {Scorer: "numeric", Right: []string{"four"}},
		"missing closing":        {Scorer: "regex", Right: []string{"(a"}},
		"invalid or unsupported": {Scorer: "regex", Right: []string{"(?=a)"}},
		"not a letter":           {Scorer: "choice", Right: []string{"AB"}},
		"is empty":               {Scorer: "includes", Right: []string{" "}},
		"makes no sense":         {Scorer: "numeric", Right: []string{"1"}, Tolerance: -1},
		"no right answer":        {Scorer: "exact"},
	} {
		if _, err := s.Compile(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}

// A pattern that would take other engines for ever, and an answer of 100 MB, are graded at once.
func TestHostile(t *testing.T) {
	grade, err := score.Spec{Scorer: "regex", Right: []string{"^(a+)+$"}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	if m := grade(strings.Repeat("a", 100<<20) + "!"); m.Value != 0 || len(m.Text) > 2000 {
		t.Errorf("%v, %d bytes of text", m.Value, len(m.Text))
	}
}

func FuzzNumber(f *testing.F) {
	f.Add("#### 1,234.5", "$-3")
	f.Fuzz(func(t *testing.T, a, b string) {
		if n, ok := score.FindNumber(a); ok && (n.Value != n.Value || n.Value-n.Value != 0) {
			t.Errorf("%q is %v", a, n.Value)
		}
		if n, ok := score.ParseNumber(b); ok {
			if m, ok := score.FindNumber(b); !ok || m != n {
				t.Errorf("%q is %v as a whole and %v in a text", b, n, m)
			}
		}
	})
}
