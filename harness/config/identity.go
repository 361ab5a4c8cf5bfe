package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// definition returns everything that defines an arm. Settings that only say how a provider is
// reached (key, price, tape, pool sizes) are not included, and neither is the driver, which is
// recorded with each attempt.
func definition(a *Arm, k *Kind, command Duration) (any, error) {
	def := struct {
		Agent   string            `json:"agent"`
		Arg     string            `json:"arg,omitempty"`
		Options map[string]string `json:"options,omitempty"`
		More    any               `json:"more,omitempty"`
		Model   string            `json:"model,omitempty"`
		BaseURL string            `json:"base_url,omitempty"`
		Blind   bool              `json:"no_images,omitempty"`
		Params  map[string]string `json:"params,omitempty"`
		Prompt  string            `json:"prompt,omitempty"` // SHA-256 of the text
		Limits  any               `json:"limits,omitempty"`
		Sandbox *Sandbox          `json:"sandbox,omitempty"`
	}{Agent: a.Agent.Name, Sandbox: a.Sandbox}
	var err error
	if a.Agent.Options != nil {
		def.Options, err = explicit(a.Agent.Options)
		for _, key := range k.Paths { // files are identified by their content, which Define returns
			delete(def.Options, key)
		}
	}
	if err != nil {
		return nil, err
	}
	if a.Params != nil {
		if def.Params, err = explicit(a.Params); err != nil {
			return nil, err
		}
	}
	if !k.IsPath { // a file is identified by its content, which Define returns
		def.Arg = a.Agent.Arg
	}
	if a.Model != nil {
		def.Model, def.BaseURL = a.Model.Name, a.Model.BaseURL
		def.Blind = a.Model.Images != nil && !*a.Model.Images
	}
	if a.Prompt != nil {
		sum := sha256.Sum256([]byte(a.Prompt.Text))
		def.Prompt = hex.EncodeToString(sum[:])
	}
	if l := a.Limits; l != nil {
		limit := int64(DefaultTime) // a time limit set by a task belongs to the task
		if l.Time != nil {
			limit = int64(*l.Time)
		}
		def.Limits = map[string]int64{
			"time_ns": limit, "turns": int64(l.Turns), "steps": int64(l.Steps), "tokens": int64(l.Tokens),
			"cost_micro_usd": int64(l.Cost * 1e6), "output": int64(l.Output), "command_ns": int64(command),
		}
	}
	if k.Define != nil {
		more, err := k.Define(a.Agent.Arg, a.Agent.Options)
		if err != nil {
			return nil, err
		}
		def.More = more
	}
	return def, nil
}

// explicit returns the members of an object, each as JSON text. An explicit temperature of 0
// differs from an unset one, but canonical JSON omits zeros.
func explicit(v any) (map[string]string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var members map[string]any
	if err := json.Unmarshal(b, &members); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for k, m := range members {
		if b, err = json.Marshal(m); err != nil { // json.Marshal sorts the keys
			return nil, err
		}
		out[k] = string(b)
	}
	return out, nil
}
