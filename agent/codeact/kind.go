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
			Picture: o.Screenshot, Pages: o.Pages, Visible: o.OnlyVisible,
		})), nil
	},
}

// Options are the agent's own options in a configuration.
type Options struct {
	GoOn     string `json:"go_on,omitempty" doc:"What a reply without a tool call is answered with."`
	MaxIdle  int    `json:"max_idle,omitempty" doc:"How many such replies in a row are answered so; the next one is the answer. Default 2, -1: none."`
	MaxChars int    `json:"max_chars,omitempty" min:"0" doc:"Characters of an observation that the model is shown. Default 30000."`

	Screenshot  string `json:"screenshot,omitempty" enum:"none,plain,marks" doc:"Where there is a browser, a picture with each observation of it: as it is, or with the bids of what can be acted on (marks). The model must take images. Default none."`
	Pages       int    `json:"pages,omitempty" doc:"How many observations of a browser the model is shown, the newest; of older ones only the address is left. -1: all. Default 1."`
	OnlyVisible bool   `json:"only_visible,omitempty" doc:"Of a page, show only what is visible."`
}
