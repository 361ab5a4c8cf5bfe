package command

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/evalrun/evalrun/agent"
)

// Kind is the agent's entry in a registry.
var Kind = agent.Kind{
	Name: "command", Arg: "LINE", Optional: true, Model: true, Prompt: true, Options: Config{},
	Paths: []string{"files"},
	Doc:   "an external program, inside the sandbox or beside evalrun",
	Define: func(line string, options json.RawMessage) (any, error) {
		c, err := configured(line, options)
		if err != nil {
			return nil, err
		}
		sum, err := c.FilesDigest()
		if err != nil || sum == "" {
			return nil, err
		}
		return map[string]string{"files": sum}, nil
	},
	Check: func(line string, options json.RawMessage) error {
		_, err := configured(line, options)
		return err
	},
	Open: func(s agent.Setup) (agent.Maker, error) {
		c, err := configured(s.Arg, s.Options)
		if err != nil {
			return nil, err
		}
		c.Prompt = s.Prompt
		if len(s.Secrets) > 0 && c.Env == nil {
			c.Env = map[string]string{}
		}
		for k, v := range s.Secrets {
			c.Env[k] = v
		}
		return func(agent.Task) (agent.Agent, error) { return c.Agent(s.Machine), nil }, nil
	},
}

// configured returns the configuration of an agent. The short form command:LINE is a shell command
// inside the sandbox.
func configured(line string, options json.RawMessage) (Config, error) {
	m := map[string]json.RawMessage{}
	if len(options) > 0 {
		if err := json.Unmarshal(options, &m); err != nil {
			return Config{}, err
		}
	}
	if line != "" {
		if m["run"] != nil {
			return Config{}, errors.New("command:LINE and options.run say the same thing; give one of them")
		}
		b, err := json.Marshal(line)
		if err != nil {
			return Config{}, err
		}
		m["run"] = b
	}
	if m["where"] == nil {
		m["where"] = json.RawMessage(`"` + InSandbox + `"`)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return Config{}, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return Config{}, err
	}
	return Parse(raw, dir)
}
