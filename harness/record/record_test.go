package record

import (
	"encoding/json"
	"testing"
)

// Golden identities, checked against an independent computation of the same hashes. They must never
// change, or stored runs would no longer be recognised.
func TestGoldenIDs(t *testing.T) {
	type def struct {
		Agent  string            `json:"agent"`
		Model  string            `json:"model,omitempty"`
		Params map[string]any    `json:"params"`
		New    []string          `json:"new"` // an option with a default, added later
		Axes   map[string]string `json:"axes"`
	}
	arm, err := ArmID(def{Agent: "codeact", Model: "openai/gpt-4o", Params: map[string]any{"temperature": 0.2}})
	if err != nil {
		t.Fatal(err)
	}
	same, err := ArmID(json.RawMessage(`{"params":{"temperature":0.2,"top_p":null},"model":"openai/gpt-4o","agent":"codeact","later":{"x":false}}`))
	if err != nil || same != arm {
		t.Errorf("order and zero values matter: %s, %s, %v", arm, same, err)
	}
	task, err := TaskDigest("humaneval", "HumanEval/0",
		json.RawMessage(`{"prompt":"def f():\n","n":10000000000000000000001}`))
	if err != nil {
		t.Fatal(err)
	}
	trial := TrialID(arm, task, 1)
	for _, c := range []struct{ what, got, want string }{
		{"arm", arm, "9d2df9a650090d4da836"},
		{"task", task, "d1b6df4b120df11550ac"},
		{"trial", trial, "7bd4f9b14a00eab1106b"},
	} {
		if c.got != c.want {
			t.Errorf("%s %s, want %s", c.what, c.got, c.want)
		}
	}
	if TrialID(arm, task, 2) == trial || TrialID(task, arm, 1) == trial {
		t.Error("different trials have one identity")
	}
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":"<&>"}`: `{"a":"<&>","b":1}`,
		`{"a":0,"b":"","c":null,"d":[],"e":{"f":false}}`: `{}`,
		`[0,"",null,{"a":0}]`:                            `[0,"",null,{}]`,
		`{"n":1.50,"m":12345678901234567890}`:            `{"m":12345678901234567890,"n":1.50}`,
		`{"é":"\u00e9"}`:                                 `{"é":"é"}`,
		`{"z":0.0,"y":0e5}`:                              `{}`,
	} {
		got, err := Canonical(json.RawMessage(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
}
