package workspace

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// topLevel returns the commands of a text that stand on lines of their own. Commands that are joined
// on one line count as one. Of a text that cannot be parsed it returns none, since bash explains
// better what is wrong.
func topLevel(text string) []string {
	if !strings.Contains(text, "\n") {
		return nil
	}
	f := parseShell(text)
	if f == nil {
		return nil
	}
	var begins []uint
	var line uint
	for _, s := range f.Stmts {
		if s.Pos().Line() > line {
			begins = append(begins, s.Pos().Offset())
		}
		line = s.End().Line()
	}
	var out []string
	for i, at := range begins {
		end := uint(len(text))
		if i+1 < len(begins) {
			end = begins[i+1]
		}
		out = append(out, strings.TrimSpace(text[at:end]))
	}
	return out
}

const maxSplit = 32 << 10

// parseShell parses a script of bash. It returns nil if there is an error in it, or if it is long:
// the parser is recursive, and a full stack would end this process.
func parseShell(text string) *syntax.File {
	if len(text) > maxSplit {
		return nil
	}
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return nil
	}
	return f
}

// severalText tells an agent that only one command is executed at once.
func severalText(all []string) string {
	var b strings.Builder
	b.WriteString("several commands at once cannot be executed. " +
		"Run each by itself, or join them by && or ;\nThe commands:")
	for i, c := range all {
		fmt.Fprintf(&b, "\n(%d) %s", i+1, c)
		if b.Len() > 4000 {
			fmt.Fprintf(&b, "\n… %d in all", len(all))
			break
		}
	}
	return b.String()
}
