package search

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// A matcher finds lines. Regular expressions are slow, so the lines that cannot match are passed over
// by literals that a match must have.
type matcher struct {
	re *regexp.Regexp // nil: each line with the literal matches
	// Each match has one of the literals; nil: there are no such literals. With fold they are in
	// lower case (of ASCII), and so is what they are looked for in.
	literals [][]byte
	fold     bool
}

func newMatcher(pattern string, literal, ignoreCase bool) (*matcher, error) {
	if strings.Contains(pattern, "\n") {
		return nil, errors.New("the pattern has a line break, and it is matched with one line at a time")
	}
	m := &matcher{}
	expr := pattern
	if literal {
		expr = regexp.QuoteMeta(pattern)
	}
	flags := syntax.Perl
	if ignoreCase {
		flags |= syntax.FoldCase
		expr = "(?i:" + expr + ")"
	}
	tree, err := syntax.Parse(expr, flags)
	if err == nil {
		m.re, err = regexp.Compile(expr)
	}
	if err != nil {
		return nil, fmt.Errorf("the regular expression %q is not valid: %w", pattern, explain(err))
	}
	tree = tree.Simplify()
	if breaks(tree) {
		return nil, errors.New(`the pattern has a line break (\n), and it is matched with one line at a time`)
	}
	m.fold = folds(tree)
	for _, s := range required(tree) {
		if m.fold {
			m.literals = append(m.literals, lower(nil, []byte(s)))
		} else {
			m.literals = append(m.literals, []byte(s))
		}
	}
	if tree.Op == syntax.OpLiteral && !m.fold && len(m.literals) == 1 {
		m.re = nil
	}
	return m, nil
}

// explain leaves out what the message of the error says already.
func explain(err error) error {
	var e *syntax.Error
	if errors.As(err, &e) {
		if e.Code == syntax.ErrInvalidPerlOp {
			return fmt.Errorf("%s is not supported; there is no looking ahead or behind", e.Expr)
		}
		return fmt.Errorf("%s: %s", e.Code, e.Expr)
	}
	return err
}

// breaks reports whether an expression has a line break as a character.
func breaks(re *syntax.Regexp) bool {
	if re.Op == syntax.OpLiteral && slices.Contains(re.Rune, '\n') {
		return true
	}
	return slices.ContainsFunc(re.Sub, breaks)
}

// folds reports whether an expression has a literal whose case is ignored.
func folds(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && re.Flags&syntax.FoldCase != 0 || slices.ContainsFunc(re.Sub, folds)
}

const maxLiterals = 16

// required returns texts of which each match of an expression has one; nil if there are none, or too
// many.
func required(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return literals(re)
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []string
		for _, sub := range re.Sub {
			if l := required(sub); better(l, best) {
				best = l
			}
		}
		return best
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			l := required(sub)
			if l == nil || len(all)+len(l) > maxLiterals {
				return nil
			}
			all = append(all, l...)
		}
		return all
	}
	return nil
}

// literals returns the text of a literal. If its case is ignored, it is the longest part that has no
// other forms than the two cases of ASCII: the k has the sign of Kelvin as a third.
func literals(re *syntax.Regexp) []string {
	text := string(re.Rune)
	if strings.ContainsRune(text, utf8.RuneError) { // it matches invalid UTF-8, too
		return nil
	}
	if re.Flags&syntax.FoldCase == 0 {
		return []string{text}
	}
	best := ""
	for _, part := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return r >= utf8.RuneSelf || r == 'k' || r == 's'
	}) {
		if len(part) > len(best) {
			best = part
		}
	}
	if best == "" {
		return nil
	}
	return []string{best}
}

// better reports whether literals are rarer than others, by the length of the shortest.
func better(a, b []string) bool {
	shortest := func(l []string) int {
		n := 0
		for i, s := range l {
			if i == 0 || len(s) < n {
				n = len(s)
			}
		}
		return n
	}
	return shortest(a) > shortest(b)
}

// lines calls found with the bounds of each line that matches, without its end, until it returns
// false. low has the text in lower case if the matcher needs it.
func (m *matcher) lines(text, low []byte, found func(start, end int) bool) {
	in := text
	if m.fold {
		in = low
	}
	var next [maxLiterals]int // where each literal occurs next
	for i := range next {
		next[i] = -1
	}
	for at := 0; at < len(text); {
		if len(m.literals) > 0 {
			first := len(text)
			for i, l := range m.literals {
				if next[i] < at {
					if next[i] = bytes.Index(in[at:], l); next[i] < 0 {
						next[i] = len(text)
					} else {
						next[i] += at
					}
				}
				first = min(first, next[i])
			}
			if first == len(text) {
				return
			}
			at += 1 + bytes.LastIndexByte(text[at:first], '\n')
		}
		end, then := len(text), len(text)
		if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
			end, then = at+i, at+i+1
		}
		if end > at && text[end-1] == '\r' {
			end--
		}
		if (m.re == nil || m.re.Match(text[at:end])) && !found(at, end) {
			return
		}
		at = then
	}
}
