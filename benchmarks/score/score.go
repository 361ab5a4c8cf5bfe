// Package score grades a text against what is right: [Exact], [Includes], [Regex], [Numeric] and
// [Choice], each with several right answers where that makes sense. Answers are written by agents
// and specs by strangers: any text is safe in both.
package score

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Names of scorers.
const (
	Exact    = "exact"    // the same text
	Includes = "includes" // the text occurs in the answer
	Regex    = "regex"    // a pattern matches the answer
	Numeric  = "numeric"  // the same number
	Choice   = "choice"   // the same letter of several choices
)

// Names of all scorers.
var Names = []string{Exact, Includes, Regex, Numeric, Choice}

// A Spec says what is right. One match among Right suffices.
type Spec struct {
	Scorer string   `json:"scorer"`
	Right  []string `json:"right"` // texts, patterns (RE2), numbers, or letters

	// Of exact and includes, and IgnoreCase also of regex. In any case (save by regex) white space
	// is folded, and quotes, backticks and asterisks around the whole, and a full stop at its end,
	// are dropped.
	IgnoreCase        bool `json:"ignore_case,omitempty"`
	IgnorePunctuation bool `json:"ignore_punctuation,omitempty"`
	IgnoreArticles    bool `json:"ignore_articles,omitempty"` // a, an, the

	// Of numeric: how far off is still right, as a number and as a part of the right one; the wider
	// counts.
	Tolerance float64 `json:"tolerance,omitempty"`
	Relative  float64 `json:"relative,omitempty"`
}

// A Mark is a grade: 1 or 0, the part of the answer that was looked at, and why, in a few words.
type Mark struct {
	Value float64
	Text  string
	Why   string
}

// A Scorer grades answers. It is safe for several goroutines.
type Scorer func(answer string) Mark

// Compile checks the spec and makes a scorer of it.
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

// MaxAnswer is how much of an answer is looked at, from its end: who has not come to the point by
// then never does.
const MaxAnswer = 1 << 20

func clip(answer string) string {
	if len(answer) > MaxAnswer {
		answer = answer[len(answer)-MaxAnswer:]
	}
	return strings.ToValidUTF8(answer, "\ufffd")
}

var marker = regexp.MustCompile(`(?i)^[\s*_#>]*(?:final\s+)?answer[\s*_]*[:=]\s*(.*)$`)

// Final is what an answer comes down to: what stands behind the last "ANSWER:" at the beginning of
// a line, or all of it.
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

// Normal is text as the spec compares it.
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
	// Marks around the whole, and a full stop at its end, say nothing.
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

// want lists what would be right, for people.
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

// Clip shortens a text to about n bytes for a record, at a border of runes.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// Clean replaces invalid UTF-8 and NUL bytes, which not every reader of a record can take.
func Clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
