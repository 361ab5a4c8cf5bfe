// Package score compares a text with expected answers: [Exact], [Includes], [Regex], [Numeric] and
// [Choice]. All accept several expected answers where that makes sense. Answers come from agents
// and specs from third parties; both may contain any text.
package score

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// The names of the scorers.
const (
	Exact    = "exact"    // equal text
	Includes = "includes" // the expected text occurs in the answer
	Regex    = "regex"    // a pattern matches the answer
	Numeric  = "numeric"  // equal number
	Choice   = "choice"   // equal letter of a multiple-choice question
)

// Names lists all scorers.
var Names = []string{Exact, Includes, Regex, Numeric, Choice}

// A Spec says which answers are correct. One match among Right suffices.
type Spec struct {
	Scorer string   `json:"scorer"`
	Right  []string `json:"right"` // texts, patterns (RE2), numbers, or letters

	// These options apply to exact and includes, and IgnoreCase also to regex. In addition, all
	// scorers except regex fold white space, and drop quotes, backticks and asterisks around the
	// whole text and a full stop at its end.
	IgnoreCase        bool `json:"ignore_case,omitempty"`
	IgnorePunctuation bool `json:"ignore_punctuation,omitempty"`
	IgnoreArticles    bool `json:"ignore_articles,omitempty"` // a, an, the

	// Tolerance and Relative apply to numeric: the allowed absolute error, and the allowed error
	// relative to the expected number. The larger one counts.
	Tolerance float64 `json:"tolerance,omitempty"`
	Relative  float64 `json:"relative,omitempty"`
}

// A Mark is a grade: 1 or 0, the part of the answer that was compared, and a short reason.
type Mark struct {
	Value float64
	Text  string
	Why   string
}

// A Scorer grades answers. It is safe for concurrent use.
type Scorer func(answer string) Mark

// Compile validates the spec and returns its scorer.
func (s Spec) Compile() (Scorer, error) {
	if len(s.Right) == 0 {
		return nil, errors.New("there is no right answer to grade against")
	}
	switch s.Scorer {
	case Exact:
		return s.exact(), nil
	case Includes:
		return s.includes()
	case Regex:
		return s.regex()
	case Numeric:
		return s.numeric()
	case Choice:
		return s.choice()
	}
	return nil, fmt.Errorf("unknown scorer %q; known are %s", s.Scorer, strings.Join(Names, ", "))
}

// MaxAnswer is the maximum number of bytes of an answer that are examined, counted from its end.
const MaxAnswer = 1 << 20

func clip(answer string) string {
	if len(answer) > MaxAnswer {
		answer = answer[len(answer)-MaxAnswer:]
	}
	return strings.ToValidUTF8(answer, "\ufffd")
}

var marker = regexp.MustCompile(`(?i)^[\s*_#>]*(?:final\s+)?answer[\s*_]*[:=]\s*(.*)$`)

// Final returns the final part of an answer: the text after the last "ANSWER:" at the start of a
// line, or the whole answer.
func Final(answer string) string {
	answer = clip(answer)
	lines := strings.Split(answer, "\n")
	for i, l := range slices.Backward(lines) {
		m := marker.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		rest := strings.TrimSpace(strings.Join(append([]string{m[1]}, lines[i+1:]...), "\n"))
		return strings.TrimSpace(strings.TrimRight(rest, "*_"))
	}
	return strings.TrimSpace(answer)
}

// normal returns text normalized as the spec requires.
func (s Spec) normal(text string) string {
	if s.IgnoreCase {
		text = strings.ToLower(text)
	}
	if s.IgnorePunctuation {
		text = strings.Map(func(r rune) rune {
			if unicode.IsPunct(r) {
				return -1
			}
			return r
		}, text)
	}
	// Ignore quotes and markup around the whole text, and a full stop at its end.
	text = strings.Trim(strings.TrimSuffix(strings.Trim(strings.TrimSpace(text), "\"'`*"), "."), "\"'`*")
	words := strings.Fields(text)
	if s.IgnoreArticles {
		words = slices.DeleteFunc(words, func(w string) bool {
			w = strings.ToLower(w)
			return w == "a" || w == "an" || w == "the"
		})
	}
	return strings.Join(words, " ")
}

func (s Spec) exact() Scorer {
	right := s.normals()
	return func(answer string) Mark {
		got := s.normal(Final(answer))
		if slices.Contains(right, got) || slices.Contains(right, s.normal(clip(answer))) {
			return mark(true, got, "")
		}
		return mark(false, got, "want "+s.want())
	}
}

func (s Spec) includes() (Scorer, error) {
	right := s.normals()
	if slices.Contains(right, "") {
		return nil, errors.New("a right answer is empty, so that every answer would include it")
	}
	return func(answer string) Mark {
		got := s.normal(clip(answer))
		for _, r := range right {
			if strings.Contains(got, r) {
				return mark(true, r, "")
			}
		}
		return mark(false, got, "includes none of "+s.want())
	}, nil
}

func (s Spec) regex() (Scorer, error) {
	var res []*regexp.Regexp
	for _, p := range s.Right {
		if s.IgnoreCase {
			p = "(?i:" + p + ")"
		}
		re, err := regexp.Compile(p)
		if err != nil {
			return nil, err
		}
		res = append(res, re)
	}
	return func(answer string) Mark {
		answer = clip(answer)
		for _, re := range res {
			if m := re.FindStringIndex(answer); m != nil {
				return mark(true, answer[m[0]:m[1]], "")
			}
		}
		return mark(false, strings.TrimSpace(answer), "no match of "+s.want())
	}, nil
}

var letter = regexp.MustCompile(`^[\s(\[*_]*([A-Za-z])[\s)\].:*_]*(?:$|[\s)\].:*_])`)

func (s Spec) choice() (Scorer, error) {
	var right []string
	for _, r := range s.Right {
		r = strings.ToUpper(strings.TrimSpace(r))
		if len(r) != 1 || r < "A" || r > "Z" {
			return nil, fmt.Errorf("the right choice %q is not a letter", r)
		}
		right = append(right, r)
	}
	return func(answer string) Mark {
		m := letter.FindStringSubmatch(Final(answer))
		if m == nil {
			return mark(false, Final(answer), "the answer is not a letter")
		}
		got := strings.ToUpper(m[1])
		if slices.Contains(right, got) {
			return mark(true, got, "")
		}
		return mark(false, got, "want "+s.want())
	}, nil
}

func (s Spec) normals() []string {
	var out []string
	for _, r := range s.Right {
		out = append(out, s.normal(r))
	}
	return out
}

// want describes the expected answers for users.
func (s Spec) want() string {
	var b strings.Builder
	for i, r := range s.Right {
		if i > 0 {
			b.WriteString(" or ")
		}
		if i == 5 {
			fmt.Fprintf(&b, "%d others", len(s.Right)-i)
			break
		}
		fmt.Fprintf(&b, "%q", Clip(r, 200))
	}
	return b.String()
}

func mark(ok bool, text, why string) Mark {
	m := Mark{Text: Clip(text, 1000), Why: why}
	if ok {
		m.Value = 1
	}
	return m
}

// Clip shortens a text to about n bytes, at a rune boundary.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// Clean replaces invalid UTF-8 and NUL bytes, which some readers of records cannot handle.
func Clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
