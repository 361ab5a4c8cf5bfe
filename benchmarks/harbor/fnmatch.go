package harbor

import (
	"errors"
	"regexp"
	"strings"
)

// fnmatch compiles a shell pattern of names: * is any text, a slash too, ? one character, [seq] and
// [!seq] one of a set.
func fnmatch(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > 1000 {
		return nil, errors.New("longer than 1000 bytes")
	}
	var re strings.Builder
	re.WriteString("(?s)^")
	for i := 0; i < len(pattern); {
		switch pattern[i] {
		case '*':
			re.WriteString(".*")
			i++
		case '?':
			re.WriteString(".")
			i++
		case '[':
			j := i + 1
			if j < len(pattern) && pattern[j] == '!' {
				j++
			}
			if j < len(pattern) && pattern[j] == ']' {
				j++
			}
			for j < len(pattern) && pattern[j] != ']' {
				j++
			}
			if j >= len(pattern) {
				re.WriteString(`\[`)
				i++
				continue
			}
			set, neg := strings.CutPrefix(pattern[i+1:j], "!")
			set = strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, "^", `\^`, "&", `\&`, "~", `\~`).Replace(set)
			if neg {
				set = "^" + set
			}
			re.WriteString("[" + set + "]")
			i = j + 1
		default:
			j := i + 1
			for j < len(pattern) && strings.IndexByte("*?[", pattern[j]) < 0 {
				j++
			}
			re.WriteString(regexp.QuoteMeta(pattern[i:j]))
			i = j
		}
	}
	re.WriteString("$")
	return regexp.Compile(re.String())
}

// A choice is which tasks are taken, by their names.
type choice struct{ in, out []*regexp.Regexp }

func newChoice(in, out []string) (c choice, err error) {
	for _, l := range []struct {
		from []string
		to   *[]*regexp.Regexp
	}{{in, &c.in}, {out, &c.out}} {
		for _, p := range l.from {
			re, err := fnmatch(p)
			if err != nil {
				return c, err
			}
			*l.to = append(*l.to, re)
		}
	}
	return c, nil
}

// takes reports whether a task of these names (its own, the short one, its folder's) is taken.
func (c choice) takes(names ...string) bool {
	fits := func(list []*regexp.Regexp) bool {
		for _, re := range list {
			for _, n := range names {
				if n != "" && re.MatchString(n) {
					return true
				}
			}
		}
		return false
	}
	return (len(c.in) == 0 || fits(c.in)) && !fits(c.out)
}
