package assistantbench

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// words compares texts, or lists of texts, by their words: the F1 score of each pair, the best
// one-to-one pairing, and the mean over the longer list. This is the metric of the DROP data set.
// If the expected text contains numbers, the answer must share at least one.
func words(got, want pyrepr.Value) float64 {
	a, ok := bags(got)
	b, ok2 := bags(want)
	if !ok || !ok2 || len(a) == 0 && len(b) == 0 {
		return 0
	}
	return align(len(a), len(b), func(i, j int) float64 { return overlap(a[i], b[j]) })
}

type bag map[string]bool

func bags(v pyrepr.Value) ([]bag, bool) {
	list, ok := v.(pyrepr.List)
	if !ok {
		s, ok := v.(pyrepr.Str)
		if !ok {
			s = pyrepr.Str(pyrepr.Repr(v))
		}
		list = pyrepr.List{s}
	}
	var out []bag
	for _, x := range list {
		s, ok := x.(pyrepr.Str)
		if !ok {
			return nil, false
		}
		b := bag{}
		for _, w := range normalize(string(s)) {
			b[w] = true
		}
		out = append(out, b)
	}
	return out, true
}

var (
	cut         = regexp.MustCompile(`[ -]`)
	punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
)

func normalize(s string) []string {
	var out []string
	for _, t := range cut.Split(s, -1) {
		t = strings.ToLower(t)
		if _, ok := float(t); !ok {
			t = strings.Map(func(r rune) rune {
				if strings.ContainsRune(punctuation, r) {
					return -1
				}
				return r
			}, t)
		}
		if f, ok := float(t); ok {
			t = pyrepr.Repr(pyrepr.Float(f))
		}
		out = append(out, strings.FieldsFunc(withoutArticles(t), pyrepr.IsSpace)...)
	}
	return out
}

// withoutArticles replaces the words a, an and the with blanks.
func withoutArticles(s string) string {
	var b strings.Builder
	word := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) || r == '_' }
	for s != "" {
		n := strings.IndexFunc(s, word)
		if n < 0 {
			n = len(s)
		}
		b.WriteString(s[:n])
		s = s[n:]
		n = strings.IndexFunc(s, func(r rune) bool { return !word(r) })
		if n < 0 {
			n = len(s)
		}
		if w := s[:n]; w == "a" || w == "an" || w == "the" {
			b.WriteByte(' ')
		} else {
			b.WriteString(w)
		}
		s = s[n:]
	}
	return b.String()
}

// overlap returns the F1 score of the words of an answer against the expected words.
func overlap(got, want bag) float64 {
	common, numbers, shared := 0, false, false
	for w := range want {
		_, isNumber := float(w)
		numbers = numbers || isNumber
		if got[w] {
			common++
			shared = shared || isNumber
		}
	}
	if numbers && !shared {
		return 0
	}
	precision, recall := 1.0, 1.0
	if len(got) > 0 {
		precision = float64(common) / float64(len(got))
	}
	if len(want) > 0 {
		recall = float64(common) / float64(len(want))
	}
	return f1(precision, recall)
}

func f1(precision, recall float64) float64 {
	if precision+recall == 0 {
		return 0
	}
	return 2 * precision * recall / (precision + recall)
}
