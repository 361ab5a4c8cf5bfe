package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Kind is an agent that a configuration can name.
type Kind struct {
	Name string
	Doc  string // one line, for help and completion

	// Arg says what follows the colon of the short form NAME:ARG, such as "FILE"; "" for nothing.
	// It must be given unless it is Optional. If IsPath, it is a path relative to the
	// configuration.
	Arg              string
	Optional, IsPath bool

	// Options is a value of the struct that describes the agent's own options: their names by tags
	// json, their texts by tags doc, their bounds by tags min, max and enum. Nil: it has none.
	Options any
	// Paths names the options that are paths relative to the configuration.
	Paths []string
	// Check looks at argument and options together, before anything is opened. Nil: nothing to do.
	Check func(arg string, options json.RawMessage) error

	// Model and Prompt: the agent uses one. NeedsModel: it cannot do without. What an agent does
	// not use is no part of its arm's identity.
	Model, NeedsModel, Prompt bool
	// Define returns what else identifies an arm with this agent, such as the digest of a script.
	// Nil: nothing.
	Define func(arg string, options json.RawMessage) (any, error)
	// Open makes what makes the agents of an arm.
	Open func(Setup) (Maker, error)
}

// A Setup is what an arm says of its agent.
type Setup struct {
	Arg     string
	Options json.RawMessage   // as checked, with absolute paths
	Secrets map[string]string // values of the variables that the agent is given
	Prompt  string            // the system prompt; "": the agent's own
	// Machine starts a machine without isolation, for the user's own program beside evalrun.
	Machine func(context.Context) (sandbox.Sandbox, error)
	// NoPictures: browsers take no screenshots in this run.
	NoPictures bool
	// BlindModel names the arm's model where it is known to take no images.
	BlindModel string
}

// Shows refuses to show pictures where there are none, or to a model that is known to take none.
func (s *Setup) Shows(screenshot string) error {
	switch {
	case screenshot == "" || screenshot == "none":
		return nil
	case s.NoPictures:
		return fmt.Errorf("the agent's option screenshot is %s, but browser.screenshots is false: "+
			"there would be none to show; set one of them otherwise", screenshot)
	case s.BlindModel != "":
		return fmt.Errorf("the agent's option screenshot is %s, but the model %s takes no images (images: false); "+
			"set screenshot: none, or name another model", screenshot, s.BlindModel)
	}
	return nil
}

// A Maker makes the agent of one session.
type Maker func(Task) (Agent, error)

// A Task is what an agent may be made for.
type Task struct {
	ID string
	// Browser reports whether the task has a browser. A task that will be skipped counts as one.
	Browser func() (bool, error)
	// Solve is the agent that plays the known solution. It fails where none is known.
	Solve func() (Agent, error)
}

// Fixed is the maker of an agent that serves all sessions.
func Fixed(a Agent) Maker {
	return func(Task) (Agent, error) { return a, nil }
}
