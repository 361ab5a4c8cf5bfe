package codeact

import (
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
)

// withOffers appends to a goal a text about what the task offers: skill folders, and tool servers
// that the model can reach from the shell.
func withOffers(g agent.Goal) agent.Goal {
	var b strings.Builder
	if len(g.Skills) > 0 {
		fmt.Fprintf(&b, "\n\nSkills, written for tasks like this one, lie in %s. Each is a folder whose file "+
			"SKILL.md begins with what the skill is for. "+
			"List them before you begin, read those that may help, and follow what they say.",
			strings.Join(g.Skills, " and "))
	}
	if len(g.MCP) > 0 {
		b.WriteString("\n\nThe sandbox has servers of the Model Context Protocol. You have no tools of theirs, but " +
			"can speak to them from the shell:")
		for _, s := range g.MCP {
			where := s.URL + " (" + s.Transport + ")"
			if s.Transport == "stdio" {
				where = "started by: " + strings.Join(append([]string{s.Command}, s.Args...), " ")
			}
			fmt.Fprintf(&b, "\n- %s: %s", s.Name, where)
		}
	}
	if b.Len() == 0 {
		return g
	}
	parts := append([]event.Part{}, g.Parts...)
	if n := len(parts); n > 0 && parts[n-1].Blob == nil {
		parts[n-1].Text += b.String()
	} else {
		parts = append(parts, event.Part{Text: strings.TrimSpace(b.String())})
	}
	g.Parts = parts
	return g
}
