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

	// Arg names the part after the colon in the short form NAME:ARG, such as "FILE"; "" if there is
	// none. The argument is required unless Optional is set. If IsPath is set, it is a path
	// relative to the configuration file.
	Arg              string
	Optional, IsPath bool

	// Options is a value of the struct that describes the agent's own options: json tags give the
	// names, doc tags the help texts, and min, max and enum tags the bounds. Nil if there are no
	// options.
	Options any
	// Paths names the options that are paths relative to the configuration file.
	Paths []string
	// Check validates argument and options together before anything is opened. May be nil.
	Check func(arg string, options json.RawMessage) error

	// Model and Prompt report whether the agent uses a model and a system prompt; NeedsModel, that
	// it requires a model. What an agent does not use is left out of its arm's identity.
	Model, NeedsModel, Prompt bool
	// Define returns additional data that identifies an arm with this agent, such as the digest of
	// a script. May be nil.
	Define func(arg string, options json.RawMessage) (any, error)
	// Open returns the Maker that makes the agents of an arm.
	Open func(Setup) (Maker, error)
}

// A Setup is an arm's configuration of its agent.
type Setup struct {
	Arg     string
	Options json.RawMessage   // checked, with absolute paths
	Secrets map[string]string // values of the environment variables that the agent is given
	Prompt  string            // the system prompt; "" selects the agent's own
	// Machine starts a machine without isolation, for a user's program that runs beside evalrun.
	Machine func(context.Context) (sandbox.Sandbox, error)
	// NoPictures reports that browsers take no screenshots in this run.
	NoPictures bool
	// BlindModel is the name of the arm's model if it is known to take no images, else "".
	BlindModel string
}

// Shows returns an error if screenshot asks for pictures and the run has none, or the model is
// known to take no images.
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

// A Task describes the task that an agent is made for.
type Task struct {
	ID string
	// Browser reports whether the task has a browser. A task that will be skipped counts as having
	// one.
	Browser func() (bool, error)
	// Solve returns the agent that plays the known solution. It returns an error if there is none.
	Solve func() (Agent, error)
}

// Fixed returns a Maker that uses a for all sessions.
func Fixed(a Agent) Maker {
	return func(Task) (Agent, error) { return a, nil }
}
