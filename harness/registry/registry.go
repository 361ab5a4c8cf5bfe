// Package registry collects the kinds of things that users can name: benchmarks, agents, vendors of
// models, sandboxes, and the formats that runs are exported to. Each package that implements one
// has a Kind. The program's main collects them in a [Registry], to which a third party's program
// adds its own. There are no globals.
package registry

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/agent/model"
	"github.com/evalrun/evalrun/benchmarks"
	"github.com/evalrun/evalrun/harness/config"
	"github.com/evalrun/evalrun/reports/export"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Registry is what users may name, in the order in which help and completion list it.
type Registry struct {
	Benchmarks []benchmarks.Kind
	Agents     []agent.Kind
	Models     []model.Kind
	Sandboxes  []sandbox.Kind
	Exporters  []export.Kind
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

// Exporter returns the format of a name, or nil.
func (r *Registry) Exporter(name string) *export.Kind {
	return find(r.Exporters, func(k *export.Kind) bool { return k.Name == name })
}

func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// plain matches names. Other characters would collide with the colon, slash or comma that follows a
// name on the command line, and a name that begins with "-" would be a flag.
var plain = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// Check returns an error if a registry cannot be used: a name that is empty, not unique, has other
// characters than a-z, 0-9, "-" and "_" or begins with one of the latter; a kind without Open;
// options that cannot be decoded.
func (r *Registry) Check() error {
	if r == nil {
		return errors.New("registry: there is none; begin with builtin.Kinds() and append to it")
	}
	seen := map[string]bool{}
	check := func(what, name string, opens bool) error {
		switch {
		case name == "":
			return fmt.Errorf("registry: a kind of %s has no name", what)
		case !plain.MatchString(name):
			return fmt.Errorf("registry: the name %q of a %s is not made of a-z, 0-9, \"-\" and \"_\", "+
				"beginning with a letter or digit", name, what)
		case seen[what+" "+name]:
			return fmt.Errorf("registry: two kinds of %s are called %q", what, name)
		case what == "sandbox" && name == "auto":
			return errors.New(`registry: the sandbox name "auto" is reserved`)
		case !opens:
			return fmt.Errorf("registry: the %s %q has no function Open", what, name)
		}
		seen[what+" "+name] = true
		return nil
	}
	var errs []error
	for _, k := range r.Benchmarks {
		errs = append(errs, check("benchmark", k.Name, k.Open != nil))
	}
	for _, k := range r.Agents {
		errs = append(errs, check("agent", k.Name, k.Open != nil))
	}
	for _, k := range r.Models {
		errs = append(errs, check("model", k.Name, k.Open != nil))
	}
	for _, k := range r.Sandboxes {
		errs = append(errs, check("sandbox", k.Name, k.Open != nil))
	}
	for _, k := range r.Exporters {
		errs = append(errs, check("exporter", k.Name, k.Open != nil))
	}
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	c := r.Config()
	return cmp.Or(described("benchmark", c.Benchmarks), described("agent", c.Agents), described("model", c.Vendors),
		described("sandbox", c.Drivers), described("exporter", c.Exporters))
}

// described checks the texts and options of kinds.
func described(what string, kinds []config.Kind) error {
	for _, k := range kinds {
		if strings.ContainsFunc(k.Doc+k.Arg, unicode.IsControl) {
			return fmt.Errorf("registry: the Doc or Arg of the %s %q is not one line of text", what, k.Name)
		}
		if err := k.Supported(); err != nil {
			return fmt.Errorf("registry: the options of the %s %q: %w", what, k.Name, err)
		}
	}
	return nil
}

// Config is what a configuration has to know of the kinds.
func (r *Registry) Config() *config.Registry {
	c := new(config.Registry)
	for _, k := range r.Benchmarks {
		c.Benchmarks = append(c.Benchmarks,
			config.Kind{Name: k.Name, Doc: k.Doc, Arg: k.Arg, Optional: k.Optional, IsPath: k.IsPath,
				Options: typeOf(k.Options), Paths: k.Paths, Check: k.Check})
	}
	for _, k := range r.Agents {
		c.Agents = append(c.Agents, config.Kind{Name: k.Name, Doc: k.Doc, Arg: k.Arg, Optional: k.Optional,
			IsPath:  k.IsPath,
			Options: typeOf(k.Options), Paths: k.Paths, Check: k.Check,
			Model: k.Model, NeedsModel: k.NeedsModel, Prompt: k.Prompt, Define: k.Define})
	}
	for _, k := range r.Models {
		c.Vendors = append(c.Vendors, config.Kind{Name: k.Name, Doc: k.Doc, KeyVar: k.KeyVar, URLVar: k.URLVar})
	}
	for _, k := range r.Sandboxes {
		c.Drivers = append(c.Drivers, config.Kind{Name: k.Name, Doc: k.Doc, Hidden: k.Test})
	}
	for _, k := range r.Exporters {
		c.Exporters = append(c.Exporters,
			config.Kind{Name: k.Name, Doc: k.Doc, Arg: k.Arg, Optional: k.Optional, IsPath: k.IsPath,
				Options: typeOf(k.Options), Paths: k.Paths, Check: k.Check})
	}
	return c
}

// typeOf is the type of the struct that options, or what they point to, are; nil: there are none.
func typeOf(options any) reflect.Type {
	if options == nil {
		return nil
	}
	t := reflect.TypeOf(options)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}
