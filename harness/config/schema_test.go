package config

import (
	"encoding/json"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"
)

func schemaFor(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	b, err := Schema(testRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return resolved(t, b)
}

func resolved(t *testing.T, b []byte) *jsonschema.Resolved {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Schema and decoder agree on what is valid and what is not.
func TestSchema(t *testing.T) {
	s := schemaFor(t)
	for _, tt := range []struct {
		in string
		ok bool
	}{
		{"benchmark: quickstart\nagent: nop\nworkers: 3\n", true},
		{"benchmark: {name: qa, path: x, options: {question: q}}\nagent: {name: nop}\n", true},
		{"benchmark: quickstart\nagent: nop\nlimits: {tokens: 20k, cost: 0.5, time: 1h30m, output: 1 MiB}\nsandbox: " +
			"{network: [example.com]}\n", true},
		{"benchmark: quickstart\nagent: nop\nselect: {ids: a*}\nshard: 1/2\nbudget: {deadline: '06:00'}\n", true},
		{"benchmark: quickstart\nmodel: {name: openai/x, key: '${K}', tape: t.jsonl}\nmatrix: {params.temperature: " +
			"[0, 1], x: {a: {limits: {turns: 1}}}}\n", true},
		{"benchmark: quickstart\nagent: null\nworkers: null\nlimits: {time: null}\nsandbox: null\narms: null\n" +
			"images: {pull: null}\nmodels: {a: null}\n", true},
		{"benchmark: quickstart\nagent: {name: nop, options: null}\n", true},
		{"benchmark: {name: qa, path: x, options: null}\nagent: nop\n", true},
		{"benchmark: quickstart\nagent: nop\nselect: {ids: [a, null]}\n", false},
		{"benchmark: quickstart\nagent: {name: null}\n", false},
		{"benchmark: ''\nagent: nop\n", false},
		{"benchmark: quickstart\nmatrix: {agent: {a: nop, b: oracle}, limits.turns: {usual: null, low: 5}}\n", true},
		{"benchmark: quickstart\nagent: nop\nlimits: {time: 0.5us}\n", false},
		{"benchmark: quickstart\nagent: nop\nworker: 3\n", false},
		{"benchmark: quickstart\nagent: nop\nworkers: many\n", false},
		{"benchmark: quickstart\nagent: nop\nworkers: 0\n", false},
		{"benchmark: quickstart\nagent: nop\nlimits: {time: soon}\n", false},
		{"benchmark: quickstart\nagent: nop\nmin_coverage: 2\n", false},
		{"benchmark: quickstart\nagent: nop\nsandbox: {driver: dokcer}\n", false},
		{"benchmark: quickstart\nmodel: {name: openai/x, key: sk-123}\n", false},
		{"benchmark: quickstart\nagent: nop\ngates: [{metric: median, min: 0}]\n", false},
		{"benchmark: {path: x}\nagent: nop\n", false},
		{"benchmark: quikstart\nagent: nop\n", false},
		{"benchmark: {name: quikstart}\nagent: nop\n", false},
		{"benchmark: quickstart\nagent: nob\n", false},
		{"benchmark: quickstart\nagent: script:x.yaml\n", true},
		{"benchmark: {name: qa, path: x, options: {qestion: q}}\nagent: nop\n", false},
		{"benchmark: {name: qa, path: x, options: {question: [q]}}\nagent: nop\n", false},
		{"benchmark: {name: quickstart, options: {question: q}}\nagent: nop\n", false},
		{"benchmark: quickstart\nagent: {name: nop, options: {x: 1}}\n", false},
	} {
		var v any
		if err := yaml.Unmarshal([]byte(tt.in), &v); err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(v)
		json.Unmarshal(b, &v)
		bySchema := s.Validate(v)
		_, byParse := parseText(t, tt.in)
		if (bySchema == nil) != tt.ok || (byParse == nil) != tt.ok {
			t.Errorf("%sschema: %v\nparse: %v\nwant ok = %t", tt.in, bySchema, byParse, tt.ok)
		}
	}
}

// Every key has a description.
func TestDocs(t *testing.T) {
	b, _ := Schema(testRegistry())
	var s map[string]any
	json.Unmarshal(b, &s)
	keys := 0
	var walk func(path string, v any)
	walk = func(path string, v any) {
		m, ok := v.(map[string]any)
		if !ok {
			return
		}
		if props, ok := m["properties"].(map[string]any); ok && path != "$defs/Params" {
			for k, p := range props {
				keys++
				if p.(map[string]any)["description"] == nil {
					t.Errorf("%s.%s has no description", path, k)
				}
			}
		}
		for k, x := range m {
			if k == "anyOf" {
				for _, y := range x.([]any) {
					walk(path, y)
				}
			}
		}
	}
	walk("", s)
	for k, d := range s["$defs"].(map[string]any) {
		walk("$defs/"+k, d)
	}
	if keys < 60 {
		t.Errorf("only %d keys were looked at", keys)
	}
}
