package codeact

import (
	"context"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/event"
)

// serverTools returns the tools of the task's tool servers. served reports whether the environment
// reaches servers; notes say what is missing.
func serverTools(ctx context.Context, s *agent.Session) (tools []agent.Tool, notes []string, served bool, err error) {
	box, ok := agent.As[agent.ToolServers](s)
	if !ok || len(s.Goal.MCP) == 0 {
		return nil, nil, false, nil
	}
	tools, notes, err = box.ServerTools(ctx)
	return tools, notes, len(tools)+len(notes) > 0, err
}

// withOffers appends to a goal a text about what the task offers: skill folders, and tool servers. If
// the servers' tools are offered, that is what is missing of them; otherwise the model can reach the
// servers from the shell.
func withOffers(g agent.Goal, served bool, notes []string) agent.Goal {
	var b strings.Builder
	if len(g.Skills) > 0 {
		fmt.Fprintf(&b, "\n\nSkills, written for tasks like this one, lie in %s. Each is a folder whose file "+
			"SKILL.md begins with what the skill is for. "+
			"List them before you begin, read those that may help, and follow what they say.",
			strings.Join(g.Skills, " and "))
	}
	if served && len(notes) > 0 {
		b.WriteString("\n\nNot all tools of the task's servers of the Model Context Protocol are there:")
		for _, note := range notes {
			b.WriteString("\n- " + note)
		}
	}
	if len(g.MCP) > 0 && !served {
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
