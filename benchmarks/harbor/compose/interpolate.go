package compose

import (
	"errors"
	"fmt"
	"strings"
)

// Vars returns the value of a declared variable; ok is false if it is not set. An error means that
// the file may not use the variable.
type Vars func(name string) (value string, ok bool, err error)

const maxNesting = 8 // of defaults within defaults

// Expand replaces the variables of a text: $VAR, ${VAR}, ${VAR-default}, ${VAR:-default},
// ${VAR?error}, ${VAR:?error}, ${VAR+other}, ${VAR:+other}, and $$ for a dollar sign. A variable
// that is not set is replaced with the empty string.
func Expand(text string, vars Vars) (string, error) {
	if !strings.Contains(text, "$") {
		return text, nil
	}
	e := expander{vars: vars}
	out, rest, err := e.run(text, 0, false)
	if err == nil && rest != "" {
		err = errors.New("an unexpected }")
	}
	return out, err
}

type expander struct{ vars Vars }

func isName(c byte, first bool) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || !first && '0' <= c && c <= '9'
}

// run expands up to the end of the text or, within braces, up to the closing brace, which it leaves
// in rest.
func (e expander) run(text string, depth int, braced bool) (out, rest string, err error) {
	if depth > maxNesting {
		return "", "", fmt.Errorf("variables nested deeper than %d", maxNesting)
	}
	var b strings.Builder
	for text != "" {
		if braced && text[0] == '}' {
			return b.String(), text, nil
		}
		if text[0] != '$' {
			n := strings.IndexAny(text, "$}")
			if n <= 0 {
				n = max(1, len(text))
				if text[0] == '}' {
					n = 1
				}
			}
			b.WriteString(text[:n])
			text = text[n:]
			continue
		}
		text = text[1:]
		switch {
		case strings.HasPrefix(text, "$"):
			b.WriteByte('$')
			text = text[1:]
		case strings.HasPrefix(text, "{"):
			v, rest, err := e.braces(text[1:], depth)
			if err != nil {
				return "", "", err
			}
			b.WriteString(v)
			text = rest
		default:
			n := 0
			for n < len(text) && isName(text[n], n == 0) {
				n++
			}
			if n == 0 {
				return "", "", errors.New("a $ that names no variable; write $$ for a dollar sign")
			}
			v, _, err := e.vars(text[:n])
			if err != nil {
				return "", "", err
			}
			b.WriteString(v)
			text = text[n:]
		}
	}
	return b.String(), "", nil
}

// braces expands the text after "${".
func (e expander) braces(text string, depth int) (out, rest string, err error) {
	n := 0
	for n < len(text) && isName(text[n], n == 0) {
		n++
	}
	name, text := text[:n], text[n:]
	if name == "" || text == "" {
		return "", "", fmt.Errorf("${%s names no variable, or is not closed", name)
	}
	op := ""
	for _, o := range []string{":-", ":?", ":+", "-", "?", "+"} {
		if strings.HasPrefix(text, o) {
			op, text = o, text[len(o):]
			break
		}
	}
	value, set, verr := e.vars(name)
	if strings.HasPrefix(op, ":") {
		set = set && value != ""
	}
	sub := e
	if used := (strings.HasSuffix(op, "-") || strings.HasSuffix(op, "?")) && !set || strings.HasSuffix(op, "+") &&
		set; !used {
		// An unused alternative may refer to undeclared variables.
		sub.vars = func(string) (string, bool, error) { return "", false, nil }
	}
	other, rest, err := sub.run(text, depth+1, true)
	if err != nil {
		return "", "", err
	}
	if !strings.HasPrefix(rest, "}") {
		return "", "", fmt.Errorf("${%s is not closed", name)
	}
	rest = rest[1:]
	switch op {
	case "":
		if other != "" {
			return "", "", fmt.Errorf("${%s%s} is no form of a variable", name, other)
		}
		return value, rest, verr
	case "-", ":-":
		if set {
			return value, rest, nil
		}
		return other, rest, nil
	case "?", ":?":
		if set {
			return value, rest, nil
		}
		if other == "" {
			other = "it is required"
		}
		if verr != nil {
			return "", "", verr
		}
		return "", "", fmt.Errorf("the variable %s is not set: %s", name, other)
	}
	if set {
		return other, rest, nil
	}
	return "", rest, nil
}
