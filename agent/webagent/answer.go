package webagent

import (
	"strings"

	"github.com/evalrun/evalrun/browsergym/pyrepr"
)

// An answer is what a model wrote, split by its tags.
type answer struct {
	think, plan, memory, action string
	wrong                       string // why there is no action; "" if there is one
}

// readAnswer parses the tags. An action without a tag is taken from code blocks.
func readAnswer(s string) answer {
	a := answer{think: tagged(s, "think"), plan: tagged(s, "plan"), memory: tagged(s, "memory")}
	rest := cut(s, "think", "plan", "memory", "criticise") // these may mention actions
	a.action = tagged(rest, "action")
	if a.action == "" {
		a.action = fenced(rest)
	}
	if a.action == "" {
		// the tag is not closed: the answer was cut off, or ends with the action
		if _, after, ok := strings.Cut(rest, "<action>"); ok && !strings.Contains(after, "</action>") {
			a.action = strings.TrimSpace(after)
		}
	}
	if a.action == "" {
		a.wrong = "Your answer has no <action>."
	}
	return a
}

// tagged returns the text between <tag> and the next </tag>. Several are joined by line breaks.
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

// cut removes tags with their contents.
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

// fenced returns the contents of code blocks.
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

// text returns a value as Python's print shows it.
func text(v pyrepr.Value) string {
	if s, ok := v.(pyrepr.Str); ok {
		return string(s)
	}
	return pyrepr.Repr(v)
}
