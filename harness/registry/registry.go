// Package registry collects the kinds of things that a configuration can name: benchmarks, agents,
// vendors of models, sandboxes. Each package that implements one has a Kind; the program's main puts
// them into a [Registry], and a program of one's own puts more. There are no globals.
package registry

import (
	"fmt"
	"reflect"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Registry is what configurations may name, in the order in which help and completion list it.
type Registry struct {
	Benchmarks []benchmarks.Kind
	Agents     []agent.Kind
	Models     []model.Kind
	Sandboxes  []sandbox.Kind
}

// Benchmark returns the benchmark of a name, or nil.
func (r *Registry) Benchmark(name string) *benchmarks.Kind {
	return find(r.Benchmarks, func(k *benchmarks.Kind) bool { return k.Name == name })
}

// Agent returns the agent of a name, or nil.
func (r *Registry) Agent(name string) *agent.Kind {
	return find(r.Agents, func(k *agent.Kind) bool { return k.Name == name })
}

// Model returns the vendor of a name, or nil.
func (r *Registry) Model(vendor string) *model.Kind {
	return find(r.Models, func(k *model.Kind) bool { return k.Name == vendor })
}

// Sandbox returns the driver of a name, or nil.
func (r *Registry) Sandbox(name string) *sandbox.Kind {
	return find(r.Sandboxes, func(k *sandbox.Kind) bool { return k.Name == name })
}

func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// Check reports what is wrong with a registry: a name that is empty, or is there twice.
func (r *Registry) Check() error {
	seen := map[string]bool{}
	for _, list := range []struct {
		what  string
		names []config.Kind
	}{{"benchmark", r.Config().Benchmarks}, {"agent", r.Config().Agents}, {"model", r.Config().Vendors}, {"sandbox", r.Config().Drivers}} {
		for _, k := range list.names {
			key := list.what + " " + k.Name
			if k.Name == "" || seen[key] {
				return fmt.Errorf("registry: the name of %s %q is empty, or there twice", list.what, k.Name)
			}
			seen[key] = true
		}
	}
	return nil
}

// Config is what a configuration has to know of the kinds.
func (r *Registry) Config() *config.Registry {
	c := new(config.Registry)
	for _, k := range r.Benchmarks {
		c.Benchmarks = append(c.Benchmarks, config.Kind{Name: k.Name, Doc: k.Doc, Arg: k.Arg, Optional: k.Optional, IsPath: k.IsPath,
			Options: typeOf(k.Options), Paths: k.Paths, Check: k.Check})
	}
	for _, k := range r.Agents {
		c.Agents = append(c.Agents, config.Kind{Name: k.Name, Doc: k.Doc, Arg: k.Arg, Optional: k.Optional, IsPath: k.IsPath,
			Options: typeOf(k.Options), Paths: k.Paths, Check: k.Check,
			Model: k.Model, NeedsModel: k.NeedsModel, Prompt: k.Prompt, Define: k.Define})
	}
	for _, k := range r.Models {
		c.Vendors = append(c.Vendors, config.Kind{Name: k.Name, Doc: k.Doc, KeyVar: k.KeyVar, URLVar: k.URLVar})
	}
	for _, k := range r.Sandboxes {
		c.Drivers = append(c.Drivers, config.Kind{Name: k.Name, Doc: k.Doc})
	}
	return c
}

// typeOf is the type of a kind's options; nil: it has none.
func typeOf(options any) reflect.Type {
	if options == nil {
		return nil
	}
	return reflect.TypeOf(options)
}
