// Package oracle is the agent that plays a task's known solution. Its score shows whether the
// benchmark and the machine are sound.
package oracle

import (
	"github.com/evalrun/evalrun/agent"
)

// Kind is the agent's entry in a registry.
var Kind = agent.Kind{
	Name: "oracle", Doc: "the known solution; earns the full score where benchmark and machine are sound",
	Open: func(agent.Setup) (agent.Maker, error) {
		return func(t agent.Task) (agent.Agent, error) { return t.Solve() }, nil
	},
}
