package registry

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/reports/export"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

type options struct {
	Level int `json:"level"`
}

// kinds has one kind of each sort, with every field that configurations see.
func openAgent(agent.Setup) (agent.Maker, error) { return nil, nil }

func kinds() *Registry {
	return &Registry{
		Benchmarks: []benchmarks.Kind{{Name: "quiz", Doc: "questions", Arg: "FILE", IsPath: true, Options: options{},
			Paths: []string{"answers"},
			Check: func(string, json.RawMessage) error { return errors.New("benchmark check") },
			Open:  func(benchmarks.Setup) (benchmarks.Benchmark, error) { return nil, nil }}},
		Agents: []agent.Kind{
			{Name: "quiz", Doc: "an agent may be called like a benchmark", Arg: "WORD", Optional: true,
				Options: &options{}, Paths: []string{"script"},
				Model: true, NeedsModel: true, Prompt: true,
				Check:  func(string, json.RawMessage) error { return errors.New("agent check") },
				Define: func(arg string, _ json.RawMessage) (any, error) { return "defined by " + arg, nil },
				Open:   openAgent},
			{Name: "idle", Open: openAgent},
		},
		Models: []model.Kind{{Name: "acme", Doc: "a vendor", KeyVar: "ACME_KEY", URLVar: "ACME_URL",
			Open: func(model.Service) (model.Factory, error) { return nil, nil }}},
		Sandboxes: []sandbox.Kind{{Name: "jail", Doc: "a driver",
			Open: func(sandbox.Setup) (sandbox.Driver, error) { return nil, nil }}},
		Exporters: []export.Kind{{Name: "form", Doc: "a format", Arg: "FILE", Optional: true, IsPath: true,
			Options: options{}, Paths: []string{"template"},
			Check: func(string, json.RawMessage) error { return errors.New("exporter check") },
			Open:  func(export.Setup) (export.Exporter, error) { return nil, nil }}},
	}
}

type small struct {
	N int8 `json:"n"`
}

const plainly = `is not made of a-z, 0-9, "-" and "_", beginning with a letter or digit`

func TestCheck(t *testing.T) {
	if err := kinds().Check(); err != nil {
		t.Errorf("distinct names: %v", err)
	}
	if err := new(Registry).Check(); err != nil {
		t.Errorf("an empty registry: %v", err)
	}
	if err := (*Registry)(nil).Check(); err == nil {
		t.Error("no registry: no error")
	}
	for want, spoil := range map[string]func(*Registry){
		`registry: two kinds of benchmark are called "quiz"`: func(r *Registry) {
			r.Benchmarks = append(r.Benchmarks, benchmarks.Kind{Name: "quiz"})
		},
		`registry: two kinds of agent are called "idle"`: func(r *Registry) {
			r.Agents = append(r.Agents, agent.Kind{Name: "idle"})
		},
		`registry: two kinds of model are called "acme"`: func(r *Registry) {
			r.Models = append(r.Models, model.Kind{Name: "acme"})
		},
		`registry: two kinds of sandbox are called "jail"`: func(r *Registry) {
			r.Sandboxes = append(r.Sandboxes, sandbox.Kind{Name: "jail"})
		},
		`registry: a kind of sandbox has no name`: func(r *Registry) {
			r.Sandboxes = append(r.Sandboxes, sandbox.Kind{})
		},
		`registry: two kinds of exporter are called "form"`: func(r *Registry) {
			r.Exporters = append(r.Exporters, export.Kind{Name: "form"})
		},
		`registry: a kind of agent has no name`: func(r *Registry) {
			r.Agents = append(r.Agents, agent.Kind{Doc: "x"})
		},
		`registry: the agent "lazy" has no function Open`: func(r *Registry) {
			r.Agents = append(r.Agents, agent.Kind{Name: "lazy"})
		},
		`registry: the sandbox name "auto" is reserved`: func(r *Registry) {
			r.Sandboxes = append(r.Sandboxes, sandbox.Kind{Name: "auto"})
		},
		`registry: the name "a:b" of a benchmark ` + plainly: func(r *Registry) {
			r.Benchmarks = append(r.Benchmarks, benchmarks.Kind{Name: "a:b"})
		},
		`registry: the name "-h" of a agent ` + plainly: func(r *Registry) {
			r.Agents = append(r.Agents, agent.Kind{Name: "-h"})
		},
		`registry: the Doc or Arg of the agent "idle" is not one line of text`: func(r *Registry) {
			r.Agents[1].Doc = "red\x1b[31m\nand more"
		},
		`registry: the options of the agent "idle": string is not a struct`: func(r *Registry) {
			r.Agents[1].Options = "none"
		},
		`registry: the options of the agent "idle": registry.small: option "n": the type int8 is not ` +
			`supported`: func(r *Registry) {
			r.Agents[1].Options = small{}
		},
		`registry: the name "a/b" of a model ` + plainly: func(r *Registry) {
			r.Models = append(r.Models, model.Kind{Name: "a/b"})
		},
	} {
		r := kinds()
		spoil(r)
		if err := r.Check(); err == nil || err.Error() != want {
			t.Errorf("Check: %v, want %s", err, want)
		}
	}
}

func TestLookup(t *testing.T) {
	r := kinds()
	// What is returned is the registry's own, so that a program can change a kind of ours.
	if k := r.Benchmark("quiz"); k != &r.Benchmarks[0] {
		t.Errorf("Benchmark(quiz) = %+v", k)
	}
	if k := r.Agent("idle"); k != &r.Agents[1] {
		t.Errorf("Agent(idle) = %+v", k)
	}
	if k := r.Model("acme"); k != &r.Models[0] {
		t.Errorf("Model(acme) = %+v", k)
	}
	if k := r.Sandbox("jail"); k != &r.Sandboxes[0] {
		t.Errorf("Sandbox(jail) = %+v", k)
	}
	if k := r.Exporter("form"); k != &r.Exporters[0] {
		t.Errorf("Exporter(form) = %+v", k)
	}
	for _, name := range []string{"", "Quiz", "quiz:x", "nothing"} {
		if r.Benchmark(name) != nil || r.Agent(name) != nil || r.Model(name) != nil || r.Sandbox(name) != nil ||
			r.Exporter(name) != nil {
			t.Errorf("something is called %q", name)
		}
	}
}

// TestConfig: what a configuration knows of a kind is what the kind says of itself, and options are
// a struct's type whether the kind gives a value or a pointer.
func TestConfig(t *testing.T) {
	c := kinds().Config()
	show := func(k config.Kind) map[string]any {
		m := map[string]any{
			"name": k.Name, "doc": k.Doc, "arg": k.Arg, "optional": k.Optional, "path": k.IsPath, "paths": k.Paths,
			"key": k.KeyVar, "url": k.URLVar,
			"model": k.Model, "needs model": k.NeedsModel, "prompt": k.Prompt,
		}
		if k.Options != nil {
			m["options"] = k.Options.String()
		}
		if k.Check != nil {
			m["check"] = k.Check("", nil).Error()
		}
		if k.Define != nil {
			m["define"], _ = k.Define("x", nil)
		}
		for key, v := range m { // what is not said
			if x := reflect.ValueOf(v); !x.IsValid() || x.IsZero() {
				delete(m, key)
			}
		}
		return m
	}
	var got []map[string]any
	for _, list := range [][]config.Kind{c.Benchmarks, c.Agents, c.Vendors, c.Drivers, c.Exporters} {
		for _, k := range list {
			got = append(got, show(k))
		}
	}
	want := []map[string]any{
		{"name": "quiz", "doc": "questions", "arg": "FILE", "path": true, "options": "registry.options",
			"paths": []string{"answers"}, "check": "benchmark check"},
		{"name": "quiz", "doc": "an agent may be called like a benchmark", "arg": "WORD", "optional": true,
			"options": "registry.options",
			"paths":   []string{"script"}, "model": true, "needs model": true, "prompt": true, "check": "agent check",
			"define": "defined by x"},
		{"name": "idle"},
		{"name": "acme", "doc": "a vendor", "key": "ACME_KEY", "url": "ACME_URL"},
		{"name": "jail", "doc": "a driver"},
		{"name": "form", "doc": "a format", "arg": "FILE", "optional": true, "path": true,
			"options": "registry.options", "paths": []string{"template"},
			"check": "exporter check"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("what configurations see (-want +got):\n%s", d)
	}
}
