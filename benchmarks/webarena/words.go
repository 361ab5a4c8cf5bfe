package webarena

import (
	"regexp"
	"strings"
)

// tokens are the words of a text as NLTK's word_tokenize finds them: sentences first, as the period
// at a sentence's end is a word of its own and one inside is not; then the Penn Treebank's
// conventions. The reference learnt from newspapers where sentences end; here a short list of
// abbreviations stands for that.
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

// sentences cuts a text behind . ? and !, but for abbreviations, initials and numbers that a small
// letter follows.
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

// rewrites put blanks around what is a word, in this order.
var rewrites = func() (list []struct {
	from *regexp.Regexp
	to   string
}) {
	for _, p := range [][2]string{
		// Opening quotes.
		{"([«“‘„]|`+)", " $1 "},
		{`^"`, " `` "},
		{`([ (\[{<])("|'')`, "$1 `` "},
		{`(?i)'([abcefghijklopqruvwxyz0-9_])\b`, "' $1"}, // but 're, 've, 'll, 'm, 't, 's, 'd and 'n…
		// Punctuation; a comma or colon inside a number is none.
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
		// Closing quotes and what is contracted.
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
