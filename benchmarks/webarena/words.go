package webarena

import (
	"regexp"
	"strings"
)

// tokens splits a text into words like NLTK's word_tokenize: first into sentences, because a period
// is a separate token only at the end of a sentence; then by the Penn Treebank's conventions. The
// reference learned sentence boundaries from newspaper text; a short list of abbreviations replaces
// that here.
func tokens(text string) []string {
	var out []string
	for _, s := range sentences(text) {
		for _, r := range rewrites {
			s = r.from.ReplaceAllString(s, r.to)
		}
		out = append(out, strings.Fields(s)...)
	}
	return out
}

var ending = regexp.MustCompile(`(\S*?)([.?!]+)(['")\]}]*)\s+`)

// sentences splits a text after . ? and !, except after abbreviations, initials and numbers
// followed by a lowercase letter.
func sentences(text string) []string {
	var out []string
	begin := 0
	for _, m := range ending.FindAllStringSubmatchIndex(text, -1) {
		word, mark, next := text[m[2]:m[3]], text[m[4]:m[5]], text[m[1]:]
		if next == "" || mark == "." && joins(word, next) || len(mark) > 1 && strings.Trim(mark, ".") == "" &&
			small(next) {
			continue
		}
		out = append(out, text[begin:m[1]])
		begin = m[1]
	}
	return append(out, text[begin:])
}

var (
	initial = regexp.MustCompile(`^[^\W\d_]$`)
	numeral = regexp.MustCompile(`^[-$]?\d[\d.,]*$`)
	abbrev  = func() map[string]bool {
		m := map[string]bool{}
		for _, w := range strings.Fields("dr mr mrs ms prof st vs e.g i.e etc inc ltd co corp jr sr u.s u.k u.n a.m " +
			"p.m jan feb aug sept oct nov dec ave blvd gen sen rep gov lt col maj capt sgt mt ph.d d.c " +
			"n.y calif mass") {
			m[w] = true
		}
		return m
	}()
)

func joins(word, next string) bool {
	word = strings.ToLower(strings.TrimLeft(word, `'"([{`))
	if strings.IndexByte(",;:.!?", next[0]) >= 0 {
		return true
	}
	return abbrev[word] || small(next) && (initial.MatchString(word) || numeral.MatchString(word))
}

func small(s string) bool { return s != "" && 'a' <= s[0] && s[0] <= 'z' }

// rewrites put spaces around tokens, in this order.
var rewrites = func() (list []struct {
	from *regexp.Regexp
	to   string
}) {
	for _, p := range [][2]string{
		// Opening quotes.
		{"([«“‘„]|`+)", " $1 "},
		{`^"`, " `` "},
		{`([ (\[{<])("|'')`, "$1 `` "},
		// except 're, 've, 'll, 'm, 't, 's, 'd and 'n
		{`(?i)'([abcefghijklopqruvwxyz0-9_])\b`, "' $1"},
		// Punctuation, except a comma or colon inside a number.
		{`([^.])(\.)([\])}>"'»”’ ]*)\s*$`, "$1 $2 $3 "},
		{`([:,])([^\d])`, " $1 $2"},
		{`([:,])$`, " $1 "},
		{`\.{2,}`, " $0 "},
		{`[;@#$%&]`, " $0 "},
		{`[?!]`, " $0 "},
		{`([^'])' `, "$1 ' "},
		{`[*]`, " $0 "},
		{`[\]\[(){}<>]`, " $0 "},
		{`--`, " -- "},
		{`^|$`, " "},
		// Closing quotes and contractions.
		{`[»”’]`, " $0 "},
		{`''|"`, " '' "},
		{`([^' ])('[sSmMdD]|') `, "$1 $2 "},
		{`([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) `, "$1 $2 "},
		{`(?i)\b(can)(not)\b`, " $1 $2 "},
		{`(?i)\b(d)('ye)\b`, " $1 $2 "},
		{`(?i)\b(gim|lem)(me)\b`, " $1 $2 "},
		{`(?i)\b(gon|wan)(na)\b`, " $1 $2 "},
		{`(?i)\b(got)(ta)\b`, " $1 $2 "},
		{`(?i)\b(more)('n)\b`, " $1 $2 "},
		{`(?i) ('t)(is|was)\b`, " $1 $2 "},
	} {
		list = append(list, struct {
			from *regexp.Regexp
			to   string
		}{regexp.MustCompile(p[0]), p[1]})
	}
	return list
}()
