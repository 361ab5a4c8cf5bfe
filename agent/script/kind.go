package script

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/internal/fsutil"
)

// Kind is the agent's entry in a registry.
var Kind = agent.Kind{
	Name: "script", Arg: "FILE", IsPath: true, Model: true, Doc: "fixed actions from a file",
	Define: func(path string, _ json.RawMessage) (any, error) {
		b, err := fsutil.ReadFile(path, 0)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(b)
		return map[string]string{"sha256": hex.EncodeToString(sum[:])}, nil
	},
	Check: func(path string, _ json.RawMessage) error {
		_, err := Load(path)
		return err
	},
	Open: func(s agent.Setup) (agent.Maker, error) {
		script, err := Load(s.Arg)
		if err != nil {
			return nil, err
		}
		return func(t agent.Task) (agent.Agent, error) { return script.For(t.ID), nil }, nil
	},
}
