package format

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

// CheckPattern reports why a shell pattern of task names is invalid; nil if it is valid.
func CheckPattern(pattern string) error {
	_, err := fnmatch(pattern)
	return err
}

// A nameFilter selects tasks by shell patterns of their names.
type nameFilter struct{ include, exclude []*regexp.Regexp }

func newNameFilter(include, exclude []string) (f nameFilter, err error) {
	for _, l := range []struct {
		from []string
		to   *[]*regexp.Regexp
	}{{include, &f.include}, {exclude, &f.exclude}} {
		for _, p := range l.from {
			re, err := fnmatch(p)
			if err != nil {
				return f, err
			}
			*l.to = append(*l.to, re)
		}
	}
	return f, nil
}

// matches reports whether a task with these names (its own, the short one, its folder's) is
// selected.
func (f nameFilter) matches(names ...string) bool {
	anyMatch := func(list []*regexp.Regexp) bool {
		for _, re := range list {
			for _, n := range names {
				if n != "" && re.MatchString(n) {
					return true
				}
			}
		}
		return false
	}
	return (len(f.include) == 0 || anyMatch(f.include)) && !anyMatch(f.exclude)
}
