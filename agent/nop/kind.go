package nop

import (
	"github.com/evalrun/evalrun/agent"
)

// Kind is the agent's entry in a registry.
var Kind = agent.Kind{
	Name: "nop", Doc: "does nothing; what it earns is given away",
	Open: func(agent.Setup) (agent.Maker, error) { return agent.Fixed(Agent), nil },
}
