package webagent

import (
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// An answer is what a model wrote, by its tags.
type answer struct {
	think, plan, memory, action string
	wrong                       string // why there is no action; ""
}

// readAnswer finds the tags. An action that is not tagged is taken from code blocks.
func readAnswer(s string) answer {
	a := answer{think: tagged(s, "think"), plan: tagged(s, "plan"), memory: tagged(s, "memory")}
	rest := cut(s, "think", "plan", "memory", "criticise") // which may speak of actions
	a.action = tagged(rest, "action")
	if a.action == "" {
		a.action = fenced(rest)
	}
	if a.action == "" {
		// not closed: the answer was cut, or ends with it
		if _, after, ok := strings.Cut(rest, "<action>"); ok && !strings.Contains(after, "</action>") {
			a.action = strings.TrimSpace(after)
		}
	}
	if a.action == "" {
		a.wrong = "Your answer has no <action>."
	}
	return a
}

// tagged is what stands between <tag> and the next </tag>; several are joined by line breaks.
func tagged(s, tag string) string {
	var out []string
	for {
		_, after, ok := strings.Cut(s, "<"+tag+">")
		if !ok {
			break
		}
		in, rest, ok := strings.Cut(after, "</"+tag+">")
		if !ok {
			break
		}
		if in = strings.TrimSpace(in); in != "" {
			out = append(out, in)
		}
		s = rest
	}
	return strings.Join(out, "\n")
}

// cut takes tags out, with what they hold.
func cut(s string, tags ...string) string {
	for _, tag := range tags {
		var b strings.Builder
		for {
			before, after, ok := strings.Cut(s, "<"+tag+">")
			if !ok {
				break
			}
			_, rest, ok := strings.Cut(after, "</"+tag+">")
			if !ok {
				break
			}
			b.WriteString(before)
			s = rest
		}
		b.WriteString(s)
		s = b.String()
	}
	return s
}

// fenced is what stands in code blocks.
func fenced(s string) string {
	var out []string
	for {
		_, after, ok := strings.Cut(s, "```")
		if !ok {
			break
		}
		in, rest, ok := strings.Cut(after, "```")
		if !ok {
			break
		}
		if line, more, ok := strings.Cut(in, "\n"); ok && !strings.ContainsAny(line, "( ") { // the block's language
			in = more
		}
		if in = strings.TrimSpace(in); in != "" {
			out = append(out, in)
		}
		s = rest
	}
	return strings.Join(out, "\n")
}

// text of a value, as print shows it.
func text(v pyrepr.Value) string {
	if s, ok := v.(pyrepr.Str); ok {
		return string(s)
	}
	return pyrepr.Repr(v)
}
