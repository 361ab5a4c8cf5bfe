package codeact

import (
	"encoding/json"

	"github.com/evalrun/evalrun/agent"
)

// Kind is the agent's entry in a registry.
var Kind = agent.Kind{
	Name: "codeact", Model: true, NeedsModel: true, Prompt: true, Options: Options{},
	Doc: "a model with a shell, or a browser",
	Open: func(s agent.Setup) (agent.Maker, error) {
		var o Options
		if len(s.Options) > 0 {
			if err := json.Unmarshal(s.Options, &o); err != nil {
				return nil, err
			}
		}
		if err := s.Shows(o.Screenshot); err != nil {
			return nil, err
		}
		return agent.Fixed(New(Config{
			Prompt: s.Prompt, GoOn: o.GoOn, MaxIdle: o.MaxIdle, MaxChars: o.MaxChars,
			Tools: o.Tools, Jupyter: o.Jupyter, Picture: o.Screenshot, Pages: o.Pages, Visible: o.OnlyVisible,
		})), nil
	},
}

// Options are the agent's own options in a configuration.
type Options struct {
	GoOn     string `json:"go_on,omitempty" doc:"Message sent to the model after a reply without a tool call."`
	MaxIdle  int    `json:"max_idle,omitempty" min:"-1" doc:"Number of replies in a row without a tool call that get this message; the next such reply is the answer. Default 2, -1: none."`
	MaxChars int    `json:"max_chars,omitempty" min:"0" doc:"Maximum characters of an observation that the model is shown. Default 30000."`

	Tools   string `json:"tools,omitempty" enum:"openhands,search,deerflow" doc:"Tools for a sandbox: a shell and an editor (openhands); these, glob and grep (search); or bash, ls, glob, grep, read_file, write_file and str_replace, as DeerFlow has them (deerflow). Default openhands."`
	Jupyter bool   `json:"jupyter,omitempty" doc:"Also execute_ipython_cell, a Jupyter kernel, in sandboxes that have Python and ipykernel."`

	Screenshot  string `json:"screenshot,omitempty" enum:"none,plain,marks" doc:"Where there is a browser, a picture with each observation of it: as it is, or with the bids of what can be acted on (marks). The model must take images. Default none."`
	Pages       int    `json:"pages,omitempty" min:"-1" doc:"Number of the newest browser observations that the model is shown; of older ones it sees only the address. Default 1, -1: all."`
	OnlyVisible bool   `json:"only_visible,omitempty" doc:"Of a page, show only what is visible."`
}
