package command

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/evalrun/evalrun/agent"
)

// serversFile describes the task's tool servers, in the format that most programs read:
// {"mcpServers": {NAME: {…}}}.
var serversFile = path.Join(taskDir, "mcp.json")

// An offered is what a task offers besides its instruction.
type offered struct {
	skills  string // folders, joined by colons
	servers string // content of serversFile; "" if there are no servers
}

// server is an entry of serversFile.
type server struct {
	Type    string            `json:"type"` // stdio, sse, http
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

func offer(g agent.Goal) (o offered, err error) {
	for _, dir := range g.Skills {
		if strings.Contains(dir, ":") {
			return o, fmt.Errorf("the task's folder of skills %q has a colon in its name, which separates folders in "+
				"EVALRUN_SKILLS", dir)
		}
	}
	o.skills = strings.Join(g.Skills, ":")
	if len(g.MCP) == 0 {
		return o, nil
	}
	all := map[string]server{}
	for _, s := range g.MCP {
		kind := s.Transport
		if kind == "streamable-http" {
			kind = "http"
		}
		all[s.Name] = server{kind, s.Command, s.Args, s.Env, s.URL, s.Headers}
	}
	b, err := json.MarshalIndent(map[string]any{"mcpServers": all}, "", "  ")
	if err != nil {
		return o, fmt.Errorf("the task's tool servers: %w", err)
	}
	o.servers = string(b) + "\n"
	return o, nil
}
