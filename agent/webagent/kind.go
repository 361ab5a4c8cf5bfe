package webagent

import (
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/agent"
)

// Kind is the agent's entry in a registry.
var Kind = agent.Kind{
	Name: "browse", Model: true, NeedsModel: true, Prompt: true, Options: Config{},
	Doc: "a model with a browser",
	Check: func(_ string, options json.RawMessage) error {
		c, err := parse(options)
		if err != nil {
			return err
		}
		return c.Check()
	},
	Open: func(s agent.Setup) (agent.Maker, error) {
		c, err := parse(s.Options)
		if err != nil {
			return nil, err
		}
		if err := s.Shows(c.Screenshot); err != nil {
			return nil, err
		}
		c.System = s.Prompt
		made, err := New(c)
		if err != nil {
			return nil, err
		}
		return func(t agent.Task) (agent.Agent, error) {
			switch here, err := t.Browser(); {
			case err != nil:
				return nil, err
			case !here:
				return nil, errNoBrowser
			}
			return made, nil
		}, nil
	},
}

var errNoBrowser = errors.New("agent browse: this task has no browser; set sandbox.browser: true to have one beside " +
	"its machine, or use the agent codeact")

func parse(options json.RawMessage) (c Config, err error) {
	if len(options) > 0 {
		err = json.Unmarshal(options, &c)
	}
	return c, err
}
