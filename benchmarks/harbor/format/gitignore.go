package format

import (
	"regexp"
	"strings"
)

// ignoreRules is a list of .gitignore patterns. As in Harbor the last one that fits a file's path
// decides, also for a file in a folder that an earlier one left out (git itself would not look into
// it again).
type ignoreRules []ignoreRule

type ignoreRule struct {
	re   *regexp.Regexp
	keep bool // the pattern began with !
}

// maxRules bounds a hostile file: each rule is tried with each name.
const maxRules = 2000

func parseIgnore(text string) (out ignoreRules) {
	for line := range strings.Lines(text) {
		if r, ok := parseRule(strings.TrimRight(line, "\r\n")); ok && len(out) < maxRules {
			out = append(out, r)
		}
	}
	return out
}

func parseRule(line string) (r ignoreRule, ok bool) {
	if strings.HasSuffix(line, `\ `) {
		line = strings.TrimLeft(line, " \t")
	} else {
		line = strings.TrimSpace(line)
	}
	if line == "" || strings.HasPrefix(line, "#") || line == "/" {
		return r, false
	}
	if r.keep = strings.HasPrefix(line, "!"); r.keep {
		line = line[1:]
	}
	// A folder's pattern fits all that is below it; a file's fits what is below a folder of that
	// name too, unless it ends in /*.
	folder := strings.HasSuffix(line, "/")
	line = strings.TrimSuffix(line, "/")
	anchored := strings.Contains(line, "/")
	var parts []string
	for _, p := range strings.Split(strings.TrimPrefix(line, "/"), "/") {
		if p == "" { // "a//b" fits nothing
			return r, false
		}
		if p != "**" || len(parts) == 0 || parts[len(parts)-1] != "**" {
			parts = append(parts, p)
		}
	}
	last := parts[len(parts)-1]
	var re strings.Builder
	re.WriteString("^")
	if !anchored {
		re.WriteString("(?:.+/)?")
	}
	for i, p := range parts {
		switch {
		case p == "**" && len(parts) == 1:
			re.WriteString("[^/]+")
		case p == "**" && i == 0:
			re.WriteString("(?:.+/)?")
		case p == "**" && i == len(parts)-1: // what is below
		case p == "**":
			re.WriteString("/(?:.+/)?")
		case i > 0 && parts[i-1] != "**":
			re.WriteString("/" + glob(p))
		default:
			re.WriteString(glob(p))
		}
	}
	switch {
	case folder || last == "**" && len(parts) > 1:
		re.WriteString("/.*$")
	case last == "*" && anchored:
		re.WriteString("$")
	default:
		re.WriteString("(?:/.*)?$")
	}
	c, err := regexp.Compile("(?s)" + re.String())
	return ignoreRule{c, r.keep}, err == nil
}

// glob is one part of a pattern as a regular expression.
func glob(p string) string {
	var re strings.Builder
	for i := 0; i < len(p); i++ {
		switch c := p[i]; c {
		case '*':
			re.WriteString("[^/]*")
		case '?':
			re.WriteString("[^/]")
		case '\\':
			if i++; i < len(p) {
				re.WriteString(regexp.QuoteMeta(p[i : i+1]))
			}
		case '[':
			set, n := class(p[i:])
			re.WriteString(set)
			i += n - 1
		default:
			n := 1
			for i+n < len(p) && p[i+n]&0xc0 == 0x80 { // the whole of a rune
				n++
			}
			re.WriteString(regexp.QuoteMeta(p[i : i+n]))
			i += n - 1
		}
	}
	return re.String()
}

// class is a bracket expression at the beginning of p, and its length. An unclosed one stands for
// itself.
func class(p string) (string, int) {
	j := 1
	if j < len(p) && (p[j] == '!' || p[j] == '^') {
		j++
	}
	if j < len(p) && p[j] == ']' {
		j++
	}
	for j < len(p) && p[j] != ']' {
		j++
	}
	if j >= len(p) {
		return `\[`, 1
	}
	set := p[1:j]
	neg := strings.HasPrefix(set, "!") || strings.HasPrefix(set, "^")
	if neg {
		set = set[1:]
	}
	set = strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, "^", `\^`, "&", `\&`, "~", `\~`).Replace(set)
	if neg {
		return "[^/" + set + "]", j + 1
	}
	return "[" + set + "]", j + 1
}

// match reports whether a file is left out. name is its path below the folder of the .gitignore.
func (g ignoreRules) match(name string) bool {
	out := false
	for _, r := range g {
		if out == r.keep && r.re.MatchString(name) {
			out = !r.keep
		}
	}
	return out
}
