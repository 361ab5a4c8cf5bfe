package shell

import (
	"encoding/json"

	"github.com/evalrun/evalrun/agent"
)

// Options of the agent, as a configuration gives them.
type Options struct {
	Shown int `json:"shown,omitempty" min:"100" doc:"How many bytes of a command's output the model is shown; default 4000."`
}

// Kind is the agent's entry in a registry. Its arms have a model and may have a system prompt.
var Kind = agent.Kind{
	Name: "shell", Doc: "asks a model for one shell command at a time", Options: Options{},
	Model: true, NeedsModel: true, Prompt: true,
	Open: func(s agent.Setup) (agent.Maker, error) {
		a := &Agent{Prompt: s.Prompt}
		if len(s.Options) > 0 {
			if err := json.Unmarshal(s.Options, &a.Options); err != nil {
				return nil, err
			}
		}
		return agent.Fixed(a), nil // one serves all sessions, as it keeps nothing between them
	},
}
